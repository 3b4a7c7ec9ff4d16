package escape

// foreignAttempts are none: the processor has one convention for 64-bit programs.
func foreignAttempts() []attempt { return nil }
