package journal

// crashPoint is a place between two instructions at which a journal must be
// consistent for the process that restores it.
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

// crashHook, if not nil, is called at each crash point. Only tests set it, to
// kill the process there.
var crashHook func(crashPoint)

func reached(p crashPoint) {
	if crashHook != nil {
		crashHook(p)
	}
}
