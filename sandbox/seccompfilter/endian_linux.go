package seccompfilter

// lowWord is the offset of the low half of a 64-bit argument: every
// architecture that a lane runs on (amd64, arm64, riscv64) is little endian.
const lowWord = 0
