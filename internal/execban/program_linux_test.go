package execban

import (
	"encoding/binary"
	"testing"

	"github.com/elastic/go-seccomp-bpf/arch"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// TestProgramJudgesEveryNumber runs the filter in the BPF machine of x/net, which
// loads big endian, as packets are; the data are laid out for it.
func TestProgramJudgesEveryNumber(t *testing.T) {
	prog, err := program()
	if err != nil {
		t.Fatal(err)
	}
	vm, err := bpf.NewVM(prog)
	if err != nil {
		t.Fatal(err)
	}
	info, err := arch.GetInfo("")
	if err != nil {
		t.Fatal(err)
	}
	verdict := func(archID, number uint32) uint32 {
		data := make([]byte, 64)
		binary.BigEndian.PutUint32(data[offNumber:], number)
		binary.BigEndian.PutUint32(data[offArch:], archID)
		out, err := vm.Run(data)
		if err != nil {
			t.Fatal(err)
		}
		return uint32(out)
	}
	for name, nr := range info.SyscallNames {
		want := uint32(retAllow)
		if name == "execve" || name == "execveat" {
			want = retEPERM
		}
		if got := verdict(uint32(info.ID), uint32(nr)); got != want {
			t.Errorf("%s: got %#x, want %#x", name, got, want)
		}
	}
	for _, nr := range []uint32{11, unix.SYS_EXECVE, unix.SYS_EXECVEAT, 358, 0, 1 << 31} {
		if got := verdict(0x40000003, nr); got != retEPERM { // AUDIT_ARCH_I386
			t.Errorf("call %d of another architecture: got %#x", nr, got)
		}
		if got := verdict(uint32(info.ID), x32Bit|nr); got != retEPERM {
			t.Errorf("call %d of x32: got %#x", nr, got)
		}
	}
}
