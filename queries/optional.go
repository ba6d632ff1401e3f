package queries

// Value returns the value of a nullable column, or the zero value for NULL.
func Value[T any](column *T) T {
	if column == nil {
		var zero T
		return zero
	}
	return *column
}

// Optional returns the value of a nullable column; the zero value becomes NULL.
func Optional[T comparable](value T) *T {
	var zero T
	if value == zero {
		return nil
	}
	return &value
}
