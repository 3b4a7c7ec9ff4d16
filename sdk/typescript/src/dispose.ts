// Where the runtime lacks the symbol, this makes `await using`, compiled for
// it, work with what this package gives out. It is the one that Node itself
// uses.
(Symbol as { asyncDispose?: symbol }).asyncDispose ??= Symbol.for("nodejs.asyncDispose");

export {};
