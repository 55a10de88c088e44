//! What the processor that runs this is good at.

/// Whether the CPU that runs this has instructions for AES.
pub(crate) fn has_aes() -> bool {
    #[cfg(target_arch = "x86_64")]
    return std::arch::is_x86_feature_detected!("aes");
    #[cfg(target_arch = "aarch64")]
    return std::arch::is_aarch64_feature_detected!("aes");
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    return false;
}

/// Whether one instruction of the CPU that runs this does AES rounds of several blocks.
pub(crate) fn has_wide_aes() -> bool {
    #[cfg(target_arch = "x86_64")]
    return std::arch::is_x86_feature_detected!("vaes") && std::arch::is_x86_feature_detected!("avx2");
    #[cfg(not(target_arch = "x86_64"))]
    return false;
}

/// Names the code path that AWS-LC takes for AES-GCM and AES-XTS on this CPU.
pub(crate) fn aws_lc_aes(with_vaes: &'static str, with_aes: &'static str, without: &'static str) -> &'static str {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::is_x86_feature_detected as has;
        let avx512 = has!("avx512f") && has!("avx512dq") && has!("avx512bw") && has!("avx512vl");
        if avx512 && has!("avx512vbmi2") && has!("vaes") && has!("vpclmulqdq") {
            return with_vaes;
        }
    }
    if has_aes() { with_aes } else { without }
}
