package journal

// point is a place between two instructions at which a journal must be whole
// for who finds it after this process.
type point int

const (
	beforeNote point = iota + 1
	afterNote
	afterSplice
	afterCommit
	beforeSwitch // to the spill file
	afterSwitch
	beforeStop
	beforeResume
	beforeSeek
	points
)

// halt, if not nil, is called wherever one comes by such a place. Only tests set
// it, to end the process there.
var halt func(point)

func reached(p point) {
	if halt != nil {
		halt(p)
	}
}
