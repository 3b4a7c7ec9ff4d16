package journal

// point is a place between two instructions at which a journal must be whole
// for who finds it after this process.
type crashPoint int

const (
	beforeSave crashPoint = iota + 1
	afterSave
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
var crashHook func(crashPoint)

func reached(p crashPoint) {
	if crashHook != nil {
		crashHook(p)
	}
}
