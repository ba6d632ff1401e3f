//go:build ignore

// Generate writes loan-applications.csv: 2,000 loan applications in the form of a
// lender's export. The file is the same at each run. About three in a hundred rows have
// one value each that violates the input schema of the workflows.
//
//	go generate ./testdata
package main

import (
	"encoding/csv"
	"fmt"
	"log"
	"math"
	"math/rand/v2"
	"os"
	"strings"
	"time"
	"unicode"
)

const (
	seed         = 20261121
	applications = 2000
	brokenShare  = 0.03
)

var columns = []string{
	"applicationId", "borrowerId", "borrower.name", "borrower.dateOfBirth", "borrower.email", "borrower.state",
	"employment.status", "employment.years", "income.annual", "income.monthlyDebt",
	"loan.amount", "loan.termMonths", "loan.purpose", "score", "submittedAt",
}

var (
	givenNames = strings.Fields(`Ada Aisha Alejandro Amara Benjamin Björn Carmen Chidi Chloé Daniel Deepa Elena
		Emeka Fatima Françoise Grace Hana Hiroshi Ines Isaac Jamal Jonas José Keiko Lars Leila Liam Mei Miguel
		Naledi Noah Nora Olga Omar Priya Rafael Rosa Samuel Siobhán Sofia Tariq Thanh Ursula Victor Wanjiru Yara Zoë`)
	familyNames = []string{
		"Abara", "Andersson", "Bauer", "Bianchi", "Chen", "Costa", "Delgado", "Diallo", "Eriksen", "Farouk", "García",
		"Gupta", "Haddad", "Horvat", "Ibrahim", "Ivanova", "Jansen", "Jones", "Kamau", "Kim", "Kowalski", "Lee", "Lopez",
		"Mbeki", "Müller", "Nakamura", "Nguyen", "Novák", "O'Brien", "Okafor", "Patel", "Pereira", "Quinn", "Rossi",
		"Sato", "Schmidt", "Silva", "Smith", "Taylor", "Vargas", "Walker", "Williams, Jr.", "Yilmaz", "Zhang",
	}
	states   = strings.Fields("AZ CA CO FL GA IL MA MI MN NC NJ NY OH OR PA TN TX VA WA WI")
	purposes = []string{"debt_consolidation", "home_improvement", "vehicle", "medical", "education", "other"}
	terms    = []string{"12", "24", "36", "36", "48", "60", "60", "72"}
)

// breaks lists the wrong values with their columns.
var breaks = []struct{ column, value string }{
	{"income.annual", "n/a"},
	{"income.annual", "54.200,00"},
	{"income.annual", "-1200.00"},
	{"income.monthlyDebt", "unknown"},
	{"loan.amount", "12,5OO.00"},
	{"loan.amount", ""},
	{"loan.termMonths", "thirty-six"},
	{"loan.termMonths", "600"},
	{"borrowerId", ""},
	{"borrower.name", ""},
	{"borrower.dateOfBirth", "1985-02-31"},
	{"borrower.dateOfBirth", "03/14/1979"},
	{"borrower.email", "no address"},
	{"employment.status", "retierd"},
	{"score", "1200"},
	{"score", ""},
}

func main() {
	log.SetFlags(0)
	file, err := os.Create("loan-applications.csv")
	if err != nil {
		log.Fatal(err)
	}
	w := csv.NewWriter(file)
	rows := [][]string{columns}
	r := rand.New(rand.NewPCG(seed, 1))
	for i := range applications {
		rows = append(rows, application(r, i+1))
	}
	if err := w.WriteAll(rows); err != nil {
		log.Fatal(err)
	}
	if err := file.Close(); err != nil {
		log.Fatal(err)
	}
}

func application(r *rand.Rand, number int) []string {
	name := pick(r, givenNames) + " " + pick(r, familyNames)
	born := time.Date(1947, 1, 1, 0, 0, 0, 0, time.UTC).AddDate(0, 0, r.IntN(60*365))
	status, years := employment(r, 2026-born.Year())
	annual := math.Max(9000, math.Exp(r.NormFloat64()*0.45+10.95)) // a median of about 57,000
	debt := annual / 12 * math.Abs(r.NormFloat64()*0.12+0.10)
	amount := math.Max(1000, annual*(0.08+r.Float64()*0.5))
	score := min(850, max(300, int(r.NormFloat64()*75+685)))
	submitted := time.Date(2026, 10, 1, 7, 0, 0, 0, time.UTC).Add(time.Duration(number*1300+r.IntN(1200)) * time.Second)
	row := []string{
		fmt.Sprintf("LA-2026-%06d", number),
		fmt.Sprintf("B-%08d", 10_000_000+r.IntN(89_999_999)),
		name,
		born.Format(time.DateOnly),
		email(name, number),
		pick(r, states),
		status,
		fmt.Sprintf("%.1f", years),
		money(annual),
		money(debt),
		loanAmount(r, amount),
		pick(r, terms),
		pick(r, purposes),
		fmt.Sprint(score),
		submitted.Format(time.RFC3339),
	}
	if r.Float64() < brokenShare {
		wrong := pick(r, breaks)
		for i, column := range columns {
			if column == wrong.column {
				row[i] = wrong.value
			}
		}
	}
	return row
}

// employment returns a status and the years in it, fewer than of adult life.
func employment(r *rand.Rand, age int) (status string, years float64) {
	years = math.Min(r.ExpFloat64()*5, float64(age-18))
	switch n := r.IntN(100); {
	case age >= 66 && n < 85:
		return "retired", 0
	case n < 78:
		return "employed", years
	case n < 94:
		return "self_employed", years
	default:
		return "unemployed", 0
	}
}

// loanAmount is a round sum for most, and one to the cent for those who
// replace a balance.
func loanAmount(r *rand.Rand, amount float64) string {
	if r.IntN(3) == 0 {
		return money(amount)
	}
	return money(math.Round(amount/250) * 250)
}

func money(amount float64) string { return fmt.Sprintf("%.2f", amount) }

func email(name string, number int) string {
	plain := strings.NewReplacer("ö", "o", "é", "e", "ç", "c", "á", "a", "ë", "e", "í", "i", "ü", "u", " ", ".").Replace(strings.ToLower(name))
	plain = strings.Map(func(c rune) rune {
		if unicode.IsLetter(c) || c == '.' {
			return c
		}
		return -1
	}, plain)
	return fmt.Sprintf("%s%d@example.com", strings.TrimSuffix(plain, ".jr."), number)
}

func pick[T any](r *rand.Rand, from []T) T { return from[r.IntN(len(from))] }
