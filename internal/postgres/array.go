package postgres

import (
	"encoding/binary"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgtype"
)

// registerArrays registers faster encoders for slices. pgx converts each element to an
// interface value and looks up its encoding. For a thousand executions that takes longer than
// to run them.
func registerArrays(m *pgtype.Map) {
	registerArray(m, pgtype.UUIDOID, pgtype.UUIDArrayOID,
		func(uuid.UUID) int { return len(uuid.UUID{}) },
		func(buf []byte, id uuid.UUID) []byte { return append(buf, id[:]...) })
	registerArray(m, pgtype.TextOID, pgtype.TextArrayOID,
		func(text string) int { return len(text) },
		func(buf []byte, text string) []byte { return append(buf, text...) })
	registerArray(m, pgtype.Int4OID, pgtype.Int4ArrayOID,
		func(int32) int { return 4 },
		func(buf []byte, n int32) []byte { return binary.BigEndian.AppendUint32(buf, uint32(n)) })
	registerArray(m, pgtype.BoolOID, pgtype.BoolArrayOID,
		func(bool) int { return 1 },
		func(buf []byte, is bool) []byte {
			if is {
				return append(buf, 1)
			}
			return append(buf, 0)
		})
	registerArray(m, pgtype.TimestamptzOID, pgtype.TimestamptzArrayOID,
		func(time.Time) int { return 8 },
		func(buf []byte, at time.Time) []byte {
			return binary.BigEndian.AppendUint64(buf, uint64(at.UnixMicro()-timestampEpoch))
		})
}

// timestampEpoch is the epoch of PostgreSQL, the beginning of 2000, in microseconds since 1970.
const timestampEpoch = 946_684_800_000_000

func registerArray[T any](m *pgtype.Map, oid, arrayOID uint32, size func(T) int, write func([]byte, T) []byte) {
	element, _ := m.TypeForOID(oid)
	array, _ := m.TypeForOID(arrayOID)
	m.RegisterType(&pgtype.Type{Name: array.Name, OID: arrayOID, Codec: arrayCodec[T]{
		ArrayCodec: &pgtype.ArrayCodec{ElementType: element}, size: size, write: write,
	}})
}

// arrayCodec is pgx's codec with an own encoder for []T.
type arrayCodec[T any] struct {
	*pgtype.ArrayCodec
	size  func(element T) int // bytes that write appends
	write func(buf []byte, element T) []byte
}

// PlanEncode implements pgtype.Codec.
func (c arrayCodec[T]) PlanEncode(m *pgtype.Map, oid uint32, format int16, value any) pgtype.EncodePlan {
	if _, ok := value.([]T); ok && format == pgtype.BinaryFormatCode {
		return arrayPlan[T](c)
	}
	return c.ArrayCodec.PlanEncode(m, oid, format, value)
}

type arrayPlan[T any] arrayCodec[T]

// Encode implements pgtype.EncodePlan. The format is that of array_send in PostgreSQL's
// src/backend/utils/adt/arrayfuncs.c.
func (p arrayPlan[T]) Encode(value any, buf []byte) ([]byte, error) {
	list := value.([]T) //nolint:errcheck // PlanEncode has checked the type
	const dimensions, hasNull, lowerBound = 1, 0, 1
	header := []uint32{dimensions, hasNull, p.ElementType.OID, uint32(len(list)), lowerBound}
	if len(list) == 0 {
		header = []uint32{0, hasNull, p.ElementType.OID}
	}
	bytes := 4 * (len(header) + len(list))
	for i := range list {
		bytes += p.size(list[i])
	}
	buf = slices.Grow(buf, bytes)
	for _, word := range header {
		buf = binary.BigEndian.AppendUint32(buf, word)
	}
	for i := range list {
		buf = binary.BigEndian.AppendUint32(buf, uint32(p.size(list[i])))
		buf = p.write(buf, list[i])
	}
	return buf, nil
}
