package queries

// Value is what a column without a value stands for: the zero value.
func Value[T any](column *T) T {
	if column == nil {
		var zero T
		return zero
	}
	return *column
}

// Optional is the value of a column that has none for the zero value.
func Optional[T comparable](value T) *T {
	var zero T
	if value == zero {
		return nil
	}
	return &value
}
