package postgres

import (
	"encoding/binary"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// registerUUID has ids go to the server and come back as the 16 bytes that they
// are. Without it pgx writes each as a text and reads that again, and goes
// through a list of them by reflection.
func registerUUID(conn *pgx.Conn) {
	id := &pgtype.Type{Name: "uuid", OID: pgtype.UUIDOID, Codec: uuidCodec{}}
	conn.TypeMap().RegisterType(id)
	conn.TypeMap().RegisterType(&pgtype.Type{
		Name: "_uuid", OID: pgtype.UUIDArrayOID, Codec: uuidArrayCodec{&pgtype.ArrayCodec{ElementType: id}},
	})
}

// uuidCodec is pgx's and knows uuid.UUID.
type uuidCodec struct{ pgtype.UUIDCodec }

// PlanEncode implements pgtype.Codec.
func (c uuidCodec) PlanEncode(m *pgtype.Map, oid uint32, format int16, value any) pgtype.EncodePlan {
	if _, ok := value.(uuid.UUID); ok && format == pgtype.BinaryFormatCode {
		return uuidPlan{}
	}
	return c.UUIDCodec.PlanEncode(m, oid, format, value)
}

// PlanScan implements pgtype.Codec.
func (c uuidCodec) PlanScan(m *pgtype.Map, oid uint32, format int16, target any) pgtype.ScanPlan {
	if _, ok := target.(*uuid.UUID); ok && format == pgtype.BinaryFormatCode {
		return uuidPlan{}
	}
	return c.UUIDCodec.PlanScan(m, oid, format, target)
}

// uuidArrayCodec is pgx's and knows []uuid.UUID.
type uuidArrayCodec struct{ *pgtype.ArrayCodec }

// PlanEncode implements pgtype.Codec.
func (c uuidArrayCodec) PlanEncode(m *pgtype.Map, oid uint32, format int16, value any) pgtype.EncodePlan {
	if _, ok := value.([]uuid.UUID); ok && format == pgtype.BinaryFormatCode {
		return uuidsPlan{}
	}
	return c.ArrayCodec.PlanEncode(m, oid, format, value)
}

type uuidPlan struct{}

// Encode implements pgtype.EncodePlan.
func (uuidPlan) Encode(value any, buf []byte) ([]byte, error) {
	id := value.(uuid.UUID) //nolint:errcheck,forcetypeassert // PlanEncode has looked
	return append(buf, id[:]...), nil
}

// Scan implements pgtype.ScanPlan. NULL gives the nil UUID, as without the codec.
func (uuidPlan) Scan(src []byte, target any) error {
	id := target.(*uuid.UUID) //nolint:errcheck,forcetypeassert // PlanScan has looked
	if len(src) != len(id) && src != nil {
		return fmt.Errorf("a uuid of %d bytes", len(src))
	}
	clear(id[copy(id[:], src):])
	return nil
}

type uuidsPlan struct{}

// Encode implements pgtype.EncodePlan. The form is that of array_send in
// PostgreSQL's src/backend/utils/adt/arrayfuncs.c.
func (uuidsPlan) Encode(value any, buf []byte) ([]byte, error) {
	ids := value.([]uuid.UUID) //nolint:errcheck,forcetypeassert // PlanEncode has looked
	const dimensions, hasNull, lowerBound = 1, 0, 1
	header := []uint32{dimensions, hasNull, pgtype.UUIDOID, uint32(len(ids)), lowerBound}
	if len(ids) == 0 {
		header = []uint32{0, hasNull, pgtype.UUIDOID}
	}
	for _, word := range header {
		buf = binary.BigEndian.AppendUint32(buf, word)
	}
	for i := range ids {
		buf = binary.BigEndian.AppendUint32(buf, uint32(len(ids[i])))
		buf = append(buf, ids[i][:]...)
	}
	return buf, nil
}
