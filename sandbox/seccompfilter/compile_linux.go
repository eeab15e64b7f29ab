package seccompfilter

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"slices"

	"github.com/elastic/go-seccomp-bpf/arch"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// Offsets into struct seccomp_data.
const (
	offNumber = 0
	offArch   = 4
	offArgs   = 16
)

const (
	retAllow  = unix.SECCOMP_RET_ALLOW
	retEPERM  = unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)
	retENOSYS = unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)
)

const x32Bit = 0x40000000

// Filter is a compiled profile: an array of struct sock_filter in the byte
// order of the machine, and its SHA-256 as lower-case hex.
type Filter struct {
	Program []byte
	SHA256  string
}

// Compile returns the profile for the architecture of this program. An
// architecture without a table of numbers is an error.
func Compile() (Filter, error) {
	prog, err := assemble()
	if err != nil {
		return Filter{}, err
	}
	raw, err := bpf.Assemble(prog)
	if err != nil {
		return Filter{}, fmt.Errorf("assemble seccomp profile: %w", err)
	}
	out := make([]byte, 0, 8*len(raw))
	for _, ins := range raw {
		out = binary.NativeEndian.AppendUint16(out, ins.Op)
		out = append(out, ins.Jt, ins.Jf)
		out = binary.NativeEndian.AppendUint32(out, ins.K)
	}
	sum := sha256.Sum256(out)
	return Filter{Program: out, SHA256: hex.EncodeToString(sum[:])}, nil
}

// span is a run of neighbouring numbers.
type span struct{ first, last uint32 }

func assemble() ([]bpf.Instruction, error) {
	info, err := arch.GetInfo("")
	if err != nil {
		return nil, fmt.Errorf("compile seccomp profile: %w", err)
	}
	prog := []bpf.Instruction{
		bpf.LoadAbsolute{Off: offArch, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: uint32(info.ID), SkipTrue: 1},
		bpf.RetConstant{Val: retEPERM},
		bpf.LoadAbsolute{Off: offNumber, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpLessThan, Val: x32Bit, SkipTrue: 1},
		bpf.RetConstant{Val: retENOSYS},
	}
	for _, c := range conditional() {
		if nr, ok := info.SyscallNames[c.name]; ok {
			prog = append(prog, c.assemble(uint32(nr))...)
		}
	}
	var numbers []uint32
	for _, name := range allowed() {
		if nr, ok := info.SyscallNames[name]; ok {
			numbers = append(numbers, uint32(nr))
		}
	}
	for _, s := range spans(numbers) {
		// number < first: next span; number > last: next span; else allow.
		prog = append(prog,
			bpf.JumpIf{Cond: bpf.JumpLessThan, Val: s.first, SkipTrue: 2},
			bpf.JumpIf{Cond: bpf.JumpGreaterThan, Val: s.last, SkipTrue: 1},
			bpf.RetConstant{Val: retAllow},
		)
	}
	youngest := uint32(0)
	for nr := range info.SyscallNumbers {
		youngest = max(youngest, uint32(nr))
	}
	return append(prog,
		bpf.JumpIf{Cond: bpf.JumpGreaterThan, Val: youngest, SkipTrue: 1},
		bpf.RetConstant{Val: retEPERM},
		bpf.RetConstant{Val: retENOSYS},
	), nil
}

func spans(numbers []uint32) []span {
	slices.Sort(numbers)
	var out []span
	for _, n := range slices.Compact(numbers) {
		if len(out) > 0 && out[len(out)-1].last+1 == n {
			out[len(out)-1].last = n
			continue
		}
		out = append(out, span{n, n})
	}
	return out
}

// test is one condition on the low 32 bits of an argument, which are all that
// the kernel looks at for the arguments named here.
type test struct {
	arg   uint32
	mask  uint32 // not zero: these bits must be clear
	value uint32 // otherwise: the argument must be equal
}

// condition allows a call when all tests of one alternative hold; otherwise,
// and where there is no alternative, the call returns deny.
type condition struct {
	name         string
	alternatives [][]test
	deny         uint32
}

func (c condition) assemble(number uint32) []bpf.Instruction {
	var body []bpf.Instruction
	for _, alt := range c.alternatives {
		var block []bpf.Instruction
		for i, t := range alt {
			// A failed test skips the rest of the alternative: two
			// instructions for each later test, and the return.
			rest := uint8(2*(len(alt)-i-1) + 1)
			block = append(block, bpf.LoadAbsolute{Off: offArgs + 8*t.arg + lowWord, Size: 4})
			if t.mask != 0 {
				block = append(block, bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: t.mask, SkipTrue: rest})
				continue
			}
			block = append(block, bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: t.value, SkipTrue: rest})
		}
		body = append(body, append(block, bpf.RetConstant{Val: retAllow})...)
	}
	body = append(body, bpf.RetConstant{Val: c.deny})
	return append([]bpf.Instruction{
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: number, SkipTrue: uint8(len(body))},
	}, body...)
}
