package postgres

// ByParts has a statement work on some rows after the others, at most rowsMax at a
// time, until it finds fewer. What has gathered in a day may be millions of rows: one
// statement for all would run for minutes, hold all of its locks until then, and begin
// anew with the next process. The error is translated by Translate.
func ByParts(rowsMax int32, part func(rowsMax int32) (rows int64, err error)) error {
	for {
		if rows, err := part(rowsMax); err != nil || rows < int64(rowsMax) {
			return Translate(err)
		}
	}
}
