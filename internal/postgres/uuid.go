package postgres

import (
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgtype"
)

// registerUUID registers a codec for uuid.UUID in the binary format. Without it, pgx converts
// each id to text and back.
func registerUUID(m *pgtype.Map) {
	m.RegisterType(&pgtype.Type{Name: "uuid", OID: pgtype.UUIDOID, Codec: uuidCodec{}})
}

// uuidCodec is pgx's codec with an own encoding of uuid.UUID.
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

type uuidPlan struct{}

// Encode implements pgtype.EncodePlan.
func (uuidPlan) Encode(value any, buf []byte) ([]byte, error) {
	id := value.(uuid.UUID) //nolint:errcheck // PlanEncode has checked the type
	return append(buf, id[:]...), nil
}

// Scan implements pgtype.ScanPlan. NULL becomes the nil UUID, as with pgx's codec.
func (uuidPlan) Scan(src []byte, target any) error {
	id := target.(*uuid.UUID) //nolint:errcheck // PlanScan has checked the type
	if len(src) != len(id) && src != nil {
		return fmt.Errorf("a uuid must have 16 bytes, not %d", len(src))
	}
	clear(id[copy(id[:], src):])
	return nil
}
