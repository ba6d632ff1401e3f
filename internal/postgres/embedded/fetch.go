package embedded

import (
	"context"
	"fmt"
	"io"
)

const fetchedMajor = 18

type fetcher struct{}

func defaultFetcher() fetcher { return fetcher{} }

func (fetcher) fetch(context.Context, string, io.Writer) (binaries, error) {
	return binaries{}, fmt.Errorf("no PostgreSQL is installed: %s", installAdvice)
}
