package expression

// Compare orders two numbers or two texts: negative, zero or positive. Any
// other pair, null included, is an *Error.
func Compare(a, b any) (int, error) {
	r := newRun(nil)
	defer r.done()
	order, err := r.compare(a, b)
	if err != nil {
		return 0, place(err, Position{})
	}
	return order, nil
}

// Equal reports whether two values are the same JSON value; numbers are
// compared by value, so 1.10 equals 1.1. Values of different types are not
// equal, nor are values too large to compare within the budget of an evaluation.
func Equal(a, b any) bool {
	r := newRun(nil)
	defer r.done()
	same, err := r.equal(a, b)
	return same && err == nil
}

// Sum adds numbers; of none it is 0. A value that is not a number is an *Error.
func Sum(values []any) (any, error) {
	total, err := sum(values)
	if err != nil {
		return nil, place(err, Position{})
	}
	return seal(total), nil
}

// Min returns the smallest of numbers or of texts; of none it is null. Values
// without an order are an *Error.
func Min(values []any) (any, error) { return extreme(values, -1) }

// Max returns the largest of numbers or of texts; of none it is null. Values
// without an order are an *Error.
func Max(values []any) (any, error) { return extreme(values, +1) }

func extreme(values []any, sign int) (any, error) {
	r := newRun(nil)
	defer r.done()
	best, err := r.extreme(values, sign)
	if err != nil {
		return nil, place(err, Position{})
	}
	return seal(best), nil
}

func sum(values []any) (*number, error) {
	total := newNumber(0)
	for _, v := range values {
		n, ok := toNumber(v)
		if !ok {
			return nil, problemf("only numbers can be added, but an element is %s", kind(v))
		}
		var err error
		if total, err = add(new(number), total, n); err != nil {
			return nil, err
		}
	}
	return total, nil
}

// extreme returns the first of the largest values, or of the smallest if sign
// is negative.
func (r *run) extreme(values []any, sign int) (any, error) {
	if len(values) == 0 {
		return nil, nil
	}
	best := values[0]
	if _, err := r.compare(best, best); err != nil {
		return nil, err
	}
	for _, v := range values[1:] {
		order, err := r.compare(v, best)
		if err != nil {
			return nil, err
		}
		if order*sign > 0 {
			best = v
		}
	}
	return best, nil
}
