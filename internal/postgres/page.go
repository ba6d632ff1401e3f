package postgres

// InPages calls a statement with the same row limit until it changes fewer rows. A day can
// leave millions of rows: one statement for all would run for minutes, hold its locks all
// the time, and start again after an interruption. Translate translates the error.
func InPages(rowsMax int32, statement func(rowsMax int32) (rows int64, err error)) error {
	for {
		if rows, err := statement(rowsMax); err != nil || rows < int64(rowsMax) {
			return Translate(err)
		}
	}
}
