package pgwire

import (
	"bytes"
	"reflect"
	"testing"

	"github.com/jackc/pgx/v5/pgproto3"
	"pgregory.net/rapid"
)

// The oracle of this file is pgproto3: what we encode it decodes to the same values, and what it
// encodes we decode to the same values.

// drawText draws a string as it can stand in a message: without zero bytes.
func drawText(label string) func(*rapid.T) string {
	return func(t *rapid.T) string {
		return rapid.StringMatching(`[^\x00]{0,40}`).Draw(t, label)
	}
}

func drawValues(t *rapid.T) [][]byte {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) []byte {
		if rapid.Bool().Draw(t, "null") {
			return nil
		}
		return append([]byte{}, rapid.SliceOfN(rapid.Byte(), 0, 30).Draw(t, "value")...)
	}), 0, 8).Draw(t, "values")
}

func drawFormats(t *rapid.T, params int) []int16 {
	n := rapid.SampledFrom([]int{0, 1, params}).Draw(t, "format count")
	return rapid.SliceOfN(rapid.Int16Range(0, 1), n, n).Draw(t, "formats")
}

// decodeBackend gives our bytes to pgproto3's client side.
func decodeBackend(t *rapid.T, data []byte) pgproto3.BackendMessage {
	msg, err := pgproto3.NewFrontend(bytes.NewReader(data), nil).Receive()
	if err != nil {
		t.Fatalf("%q: %v", data, err)
	}
	return msg
}

// same compares by what pgproto3 would send, since it does not tell nil slices from empty ones.
func same(t *rapid.T, got, want pgproto3.Message) {
	if reflect.TypeOf(got) != reflect.TypeOf(want) || !bytes.Equal(encode(t, got), encode(t, want)) {
		t.Fatalf("got %#v, want %#v", got, want)
	}
}

func TestBackendMessages(t *testing.T) {
	name, value := drawText("name"), drawText("value")
	cases := map[string]func(t *rapid.T) (ours []byte, want pgproto3.BackendMessage){
		"AuthenticationOk": func(*rapid.T) ([]byte, pgproto3.BackendMessage) {
			return AppendAuthOK(nil), &pgproto3.AuthenticationOk{}
		},
		"ParameterStatus": func(t *rapid.T) ([]byte, pgproto3.BackendMessage) {
			n, v := name(t), value(t)
			return AppendParameterStatus(nil, n, v), &pgproto3.ParameterStatus{Name: n, Value: v}
		},
		"BackendKeyData": func(t *rapid.T) ([]byte, pgproto3.BackendMessage) {
			pid := rapid.Uint32().Draw(t, "pid")
			return AppendBackendKeyData(nil, pid, 7), &pgproto3.BackendKeyData{ProcessID: pid, SecretKey: []byte{0, 0, 0, 7}}
		},
		"ReadyForQuery": func(t *rapid.T) ([]byte, pgproto3.BackendMessage) {
			status := rapid.SampledFrom([]byte{TxIdle, TxActive, TxFailed}).Draw(t, "status")
			ours := AppendReadyForQuery(nil, status)
			if ReadyStatus(ours) != status {
				t.Fatalf("status %q of %q", ReadyStatus(ours), ours)
			}
			return ours, &pgproto3.ReadyForQuery{TxStatus: status}
		},
		"CommandComplete": func(t *rapid.T) ([]byte, pgproto3.BackendMessage) {
			tag := name(t)
			return AppendCommandComplete(nil, tag), &pgproto3.CommandComplete{CommandTag: []byte(tag)}
		},
		"DataRow": func(t *rapid.T) ([]byte, pgproto3.BackendMessage) {
			values := drawValues(t)
			return AppendDataRow(nil, values), &pgproto3.DataRow{Values: values}
		},
		"ParameterDescription": func(t *rapid.T) ([]byte, pgproto3.BackendMessage) {
			oids := rapid.SliceOfN(rapid.Uint32(), 0, 9).Draw(t, "oids")
			return AppendParameterDescription(nil, oids), &pgproto3.ParameterDescription{ParameterOIDs: oids}
		},
		"NotificationResponse": func(t *rapid.T) ([]byte, pgproto3.BackendMessage) {
			c, p := name(t), value(t)
			return AppendNotificationResponse(nil, 42, c, p), &pgproto3.NotificationResponse{PID: 42, Channel: c, Payload: p}
		},
		"CopyInResponse": func(t *rapid.T) ([]byte, pgproto3.BackendMessage) {
			return AppendCopyInResponse(nil, 1, 2), &pgproto3.CopyInResponse{OverallFormat: 1, ColumnFormatCodes: []uint16{1, 1}}
		},
		"CopyOutResponse": func(t *rapid.T) ([]byte, pgproto3.BackendMessage) {
			return AppendCopyOutResponse(nil, 0, 1), &pgproto3.CopyOutResponse{OverallFormat: 0, ColumnFormatCodes: []uint16{0}}
		},
		"EmptyQueryResponse": func(*rapid.T) ([]byte, pgproto3.BackendMessage) {
			return AppendEmptyQueryResponse(nil), &pgproto3.EmptyQueryResponse{}
		},
		"ParseComplete": func(*rapid.T) ([]byte, pgproto3.BackendMessage) {
			return AppendParseComplete(nil), &pgproto3.ParseComplete{}
		},
		"BindComplete": func(*rapid.T) ([]byte, pgproto3.BackendMessage) {
			return AppendBindComplete(nil), &pgproto3.BindComplete{}
		},
		"CloseComplete": func(*rapid.T) ([]byte, pgproto3.BackendMessage) {
			return AppendCloseComplete(nil), &pgproto3.CloseComplete{}
		},
		"NoData": func(*rapid.T) ([]byte, pgproto3.BackendMessage) {
			return AppendNoData(nil), &pgproto3.NoData{}
		},
		"PortalSuspended": func(*rapid.T) ([]byte, pgproto3.BackendMessage) {
			return AppendPortalSuspended(nil), &pgproto3.PortalSuspended{}
		},
		"CopyDone": func(*rapid.T) ([]byte, pgproto3.BackendMessage) {
			return AppendCopyDone(nil), &pgproto3.CopyDone{}
		},
		"CopyData": func(t *rapid.T) ([]byte, pgproto3.BackendMessage) {
			data := rapid.SliceOfN(rapid.Byte(), 0, 50).Draw(t, "data")
			return AppendCopyData(nil, data), &pgproto3.CopyData{Data: data}
		},
	}
	for label, make := range cases {
		t.Run(label, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				ours, want := make(t)
				same(t, decodeBackend(t, ours), want)
			})
		})
	}
}

func TestRowDescription(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var columns []Column
		want := &pgproto3.RowDescription{}
		for range rapid.IntRange(0, 6).Draw(t, "columns") {
			c := Column{
				Name:         drawText("name")(t),
				TableOID:     rapid.Uint32().Draw(t, "table"),
				TableColumn:  int16(rapid.IntRange(0, 1600).Draw(t, "number")),
				TypeOID:      rapid.Uint32().Draw(t, "type"),
				TypeSize:     rapid.Int16().Draw(t, "size"),
				TypeModifier: rapid.Int32().Draw(t, "modifier"),
				Format:       rapid.Int16Range(0, 1).Draw(t, "format"),
			}
			columns = append(columns, c)
			want.Fields = append(want.Fields, pgproto3.FieldDescription{
				Name: []byte(c.Name), TableOID: c.TableOID, TableAttributeNumber: uint16(c.TableColumn),
				DataTypeOID: c.TypeOID, DataTypeSize: c.TypeSize, TypeModifier: c.TypeModifier, Format: c.Format,
			})
		}
		same(t, decodeBackend(t, AppendRowDescription(nil, columns)), want)
	})
}

// decodeFrontend gives our bytes to pgproto3's server side.
func decodeFrontend(t *rapid.T, data []byte) pgproto3.FrontendMessage {
	msg, err := pgproto3.NewBackend(bytes.NewReader(data), nil).Receive()
	if err != nil {
		t.Fatalf("%q: %v", data, err)
	}
	return msg
}

func TestFrontendMessages(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name, query := drawText("name")(t), drawText("query")(t)
		oids := rapid.SliceOfN(rapid.Uint32(), 0, 5).Draw(t, "oids")
		same(t, decodeFrontend(t, AppendQuery(nil, query)), &pgproto3.Query{String: query})
		parse := &pgproto3.Parse{Name: name, Query: query, ParameterOIDs: oids}
		same(t, decodeFrontend(t, AppendParse(nil, name, query, oids)), parse)
		object := rapid.SampledFrom([]byte{Statement, Portal}).Draw(t, "object")
		same(t, decodeFrontend(t, AppendDescribe(nil, object, name)), &pgproto3.Describe{ObjectType: object, Name: name})
		same(t, decodeFrontend(t, AppendClose(nil, object, name)), &pgproto3.Close{ObjectType: object, Name: name})
		rows := rapid.Int32Range(0, 1<<30).Draw(t, "rows")
		same(t, decodeFrontend(t, AppendExecute(nil, name, rows)), &pgproto3.Execute{Portal: name, MaxRows: uint32(rows)})
		same(t, decodeFrontend(t, AppendSync(nil)), &pgproto3.Sync{})
		same(t, decodeFrontend(t, AppendFlush(nil)), &pgproto3.Flush{})
		same(t, decodeFrontend(t, AppendTerminate(nil)), &pgproto3.Terminate{})
		same(t, decodeFrontend(t, AppendCopyFail(nil, name)), &pgproto3.CopyFail{Message: name})
	})
}

func TestNegotiateProtocolVersion(t *testing.T) {
	data := appendNegotiateProtocolVersion(nil, protocolVersion3, []string{"_pq_.a", "_pq_.b"})
	msg, err := pgproto3.NewFrontend(bytes.NewReader(data), nil).Receive()
	if err != nil {
		t.Fatal(err)
	}
	want := &pgproto3.NegotiateProtocolVersion{NewestMinorProtocol: protocolVersion3, UnrecognizedOptions: []string{"_pq_.a", "_pq_.b"}}
	if !reflect.DeepEqual(msg, want) {
		t.Errorf("%#v", msg)
	}
}
