//! Carries the built eBPF object. The programs are in `src/bin/chaos`; `cargo xtask ebpf build` makes the object
//! from them and `cargo xtask ebpf check` says whether it still is what they make.
#![no_std]

// While the programs themselves are built there is nothing to carry yet.
#[cfg(not(feature = "ebpf"))]
mod object {
    /// Aligns the bytes behind it for the ELF reader.
    #[repr(C, align(8))]
    struct Aligned<T: ?Sized>(T);

    static ALIGNED: &Aligned<[u8]> = &Aligned(*include_bytes!("../prebuilt/chaos.bpfel.o"));

    /// The object for little-endian machines, aligned to 8 bytes.
    pub static OBJECT: &[u8] = &ALIGNED.0;
}

#[cfg(not(feature = "ebpf"))]
pub use object::OBJECT;
