package output

import (
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"tranche/internal/itemfile"
	"tranche/queries"
)

// BenchmarkReport measures writing an item to the files of a package.
func BenchmarkReport(b *testing.B) {
	status, row, name := int32(200), int32(2), "loans.csv"
	item := queries.BatchItemsListResultsRow{
		ID: uuid.New(), Status: "completed", StatusCode: &status, RowNumber: &row, SourceFileName: &name,
		Input:  []byte(`{"address":{"city":"Springfield","street":"12 Long Avenue","zip":"01234"},"amount":1000.00,"borrowerId":"B-0000001","debt":12.10,"email":"maria.santos@example.com","firstName":"Maria","income":2000.10,"lastName":"Santos","months":36,"purpose":"home improvement","score":612}`),
		Result: []byte(`{"isSuccess":true,"statusCode":200,"output":{"decision":"approve","limit":5000,"rate":0.0450,"ratios":{"debt":0.0061,"disposable":1988.00}},"customOutput":null,"attachments":[],"notes":[],"notices":[],"errorMessage":null}`),
	}
	columns := func(text []byte) []string {
		s := itemfile.NewColumns()
		s.AddLeaves(decodeObject(string(text)))
		return s.Names()
	}
	page := newReportPage(columns(item.Input), []string{"decision", "limit", "rate", "ratios.debt", "ratios.disposable"})
	b.ReportAllocs()
	for range b.N {
		it, err := newItemResult(&item)
		if err == nil {
			err = page.write(it)
		}
		if err != nil {
			b.Fatal(err)
		}
		if page.texts[resultsJSONLFile].Len() > 1<<20 {
			require.NoError(b, page.flush())
			page.reset()
		}
	}
}
