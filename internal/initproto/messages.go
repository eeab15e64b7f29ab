package initproto

// MountKind says what the init mounts for its programs.
type MountKind uint8

// The kinds: a read-only folder below a writable layer, and an empty folder.
const (
	_       MountKind = 0
	Layer   MountKind = 1
	Scratch MountKind = 2
)

// Mount is one writable place of the programs.
type Mount struct {
	Kind   MountKind
	Source string // inside, for Layer
	Target string
	Shared bool
}

// Namespace is one of the lane's own namespaces, by its kernel link text
// ("net:[4026531840]").
type Namespace struct{ Name, Link string }

// Setup says what every program of a sandbox gets, and what must be observed.
type Setup struct {
	Seccomp     []byte // struct sock_filter array for the native ABI
	SharedBytes int64  // size of the tmpfs behind shared mounts; 0: none
	FreshBytes  int64  // size of each program's own tmpfs
	CopyLayers  bool   // each Layer is a copy, not an overlay
	Mounts      []Mount
	Hide        []string    // mount points that no program sees
	ReadOnly    []string    // targets that must refuse writing
	Writable    []string    // targets that must be limited to DiskBytes
	DiskBytes   int64       // of all writable places together
	IDMap       string      // fields of uid_map and gid_map, joined by one space
	Host        []Namespace // none of which may be the program's own
}

// Encode returns s as a payload.
func (s Setup) Encode() []byte {
	var e encoder
	e.bytes(s.Seccomp)
	e.int(s.SharedBytes)
	e.int(s.FreshBytes)
	e.bool(s.CopyLayers)
	e.int(int64(len(s.Mounts)))
	for _, m := range s.Mounts {
		e.int(int64(m.Kind))
		e.string(m.Source)
		e.string(m.Target)
		e.bool(m.Shared)
	}
	e.strings(s.Hide)
	e.strings(s.ReadOnly)
	e.strings(s.Writable)
	e.int(s.DiskBytes)
	e.string(s.IDMap)
	e.int(int64(len(s.Host)))
	for _, n := range s.Host {
		e.string(n.Name)
		e.string(n.Link)
	}
	return e.b
}

// DecodeSetup reads what Encode wrote.
func DecodeSetup(b []byte) (Setup, error) {
	d := decoder{b: b}
	s := Setup{Seccomp: append([]byte(nil), d.bytes()...), SharedBytes: d.int(), FreshBytes: d.int(), CopyLayers: d.bool()}
	if n := d.count(17); n > 0 {
		s.Mounts = make([]Mount, n)
	}
	for i := range s.Mounts {
		k := d.int()
		if k != int64(Layer) && k != int64(Scratch) {
			d.fail("unknown kind of mount")
		}
		s.Mounts[i] = Mount{Kind: MountKind(k), Source: d.string(), Target: d.string(), Shared: d.bool()}
	}
	s.Hide, s.ReadOnly, s.Writable = d.strings(), d.strings(), d.strings()
	s.DiskBytes, s.IDMap = d.int(), d.string()
	if n := d.count(8); n > 0 {
		s.Host = make([]Namespace, n)
	}
	for i := range s.Host {
		s.Host[i] = Namespace{Name: d.string(), Link: d.string()}
	}
	if err := d.end(); err != nil {
		return Setup{}, err
	}
	return s, nil
}

// File is written below a Layer's target before its program starts.
type File struct {
	Path string
	Mode uint32
	Data []byte
}

// Program is one command.
type Program struct {
	Path         string
	Args         []string
	Dir          string
	Env          []string
	Files        []File
	Collect      []string
	CollectBytes int64
	WallClockNS  int64 // 0: no limit of its own
}

// Encode returns p as a payload.
func (p Program) Encode() []byte {
	var e encoder
	e.string(p.Path)
	e.strings(p.Args)
	e.string(p.Dir)
	e.strings(p.Env)
	e.int(int64(len(p.Files)))
	for _, f := range p.Files {
		e.string(f.Path)
		e.int(int64(f.Mode))
		e.bytes(f.Data)
	}
	e.strings(p.Collect)
	e.int(p.CollectBytes)
	e.int(p.WallClockNS)
	return e.b
}

// DecodeProgram reads what Encode wrote. File data are parts of b.
func DecodeProgram(b []byte) (Program, error) {
	d := decoder{b: b}
	p := Program{Path: d.string(), Args: d.strings(), Dir: d.string(), Env: d.strings()}
	if n := d.count(16); n > 0 {
		p.Files = make([]File, n)
	}
	for i := range p.Files {
		p.Files[i].Path = d.string()
		m := d.int()
		if m < 0 || m > 0o7777 {
			d.fail("mode out of range")
		}
		p.Files[i].Mode, p.Files[i].Data = uint32(m), d.bytes()
	}
	p.Collect, p.CollectBytes, p.WallClockNS = d.strings(), d.int(), d.int()
	if err := d.end(); err != nil {
		return Program{}, err
	}
	return p, nil
}

// Facet is one thing that the init saw.
type Facet struct {
	Name, Required, Observed string
	OK                       bool
}

// EncodeFacets returns fs as a payload.
func EncodeFacets(fs []Facet) []byte {
	var e encoder
	e.int(int64(len(fs)))
	for _, f := range fs {
		e.string(f.Name)
		e.string(f.Required)
		e.string(f.Observed)
		e.bool(f.OK)
	}
	return e.b
}

// DecodeFacets reads what EncodeFacets wrote.
func DecodeFacets(b []byte) ([]Facet, error) {
	d := decoder{b: b}
	var fs []Facet
	if n := d.count(13); n > 0 {
		fs = make([]Facet, n)
	}
	for i := range fs {
		fs[i] = Facet{Name: d.string(), Required: d.string(), Observed: d.string(), OK: d.bool()}
	}
	if err := d.end(); err != nil {
		return nil, err
	}
	return fs, nil
}

// Exited says how a program ended.
type Exited struct {
	ExitCode    int64 // 128 plus the signal where one ended it
	Signal      int64 // 0: it exited
	TimedOut    bool
	LeftBehind  int64
	DurationNS  int64
	CPUNS       int64 // of it and everything that descended from it
	MaxRSSBytes int64
	DiskFull    bool // a writable place had no block or no inode left
}

// Encode returns x as a payload.
func (x Exited) Encode() []byte {
	var e encoder
	e.int(x.ExitCode)
	e.int(x.Signal)
	e.bool(x.TimedOut)
	e.int(x.LeftBehind)
	e.int(x.DurationNS)
	e.int(x.CPUNS)
	e.int(x.MaxRSSBytes)
	e.bool(x.DiskFull)
	return e.b
}

// DecodeExited reads what Encode wrote.
func DecodeExited(b []byte) (Exited, error) {
	d := decoder{b: b}
	x := Exited{
		ExitCode: d.int(), Signal: d.int(), TimedOut: d.bool(), LeftBehind: d.int(),
		DurationNS: d.int(), CPUNS: d.int(), MaxRSSBytes: d.int(), DiskFull: d.bool(),
	}
	if err := d.end(); err != nil {
		return Exited{}, err
	}
	return x, nil
}

// Collected is a part of the Index-th file of Program.Collect. The parts of a
// file come in order; Last marks the last one.
type Collected struct {
	Index              int64
	Regular, Truncated bool
	Last               bool
	Data               []byte
}

// Encode returns c as a payload.
func (c Collected) Encode() []byte {
	var e encoder
	e.int(c.Index)
	e.bool(c.Regular)
	e.bool(c.Truncated)
	e.bool(c.Last)
	e.bytes(c.Data)
	return e.b
}

// DecodeCollected reads what Encode wrote. Data is a part of b.
func DecodeCollected(b []byte) (Collected, error) {
	d := decoder{b: b}
	c := Collected{Index: d.int(), Regular: d.bool(), Truncated: d.bool(), Last: d.bool(), Data: d.bytes()}
	if err := d.end(); err != nil {
		return Collected{}, err
	}
	return c, nil
}
