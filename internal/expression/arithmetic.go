package expression

// Compare orders two numbers or two texts: negative, zero or positive. Any
// other pair, null included, is an *Error.
func Compare(a, b any) (int, error) { _, _ = a, b; return 0, nil }

// Equal reports whether two values are the same JSON value; numbers are
// compared by value, so 1.10 equals 1.1. Values of different types are not equal.
func Equal(a, b any) bool { _, _ = a, b; return false }

// Sum adds numbers; of none it is 0. A value that is not a number is an *Error.
func Sum(values []any) (any, error) { _ = values; return nil, nil }

// Min returns the smallest of numbers or of texts; of none it is null.
func Min(values []any) (any, error) { _ = values; return nil, nil }

// Max returns the largest of numbers or of texts; of none it is null.
func Max(values []any) (any, error) { _ = values; return nil, nil }
