// If the runtime lacks the symbol, this lets compiled `await using` work with the
// objects of this package. It is the same symbol that Node uses.
(Symbol as { asyncDispose?: symbol }).asyncDispose ??= Symbol.for("nodejs.asyncDispose");

export {};
