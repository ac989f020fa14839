package router

import (
	"encoding/binary"
	"time"

	"github.com/pgshoal/pgshoal/pool"
)

// listen makes sure that no notification of the connection is lost from now on.
func (s *session) listen(c *pool.Conn) {
	s.listening = true
	c.Notification = func(msg []byte) {
		s.ownNotification(c, msg)
		s.client.Append(msg)
	}
}

// passNotifications relays what listening connections hear while the client is silent. The
// returned function ends it, before anything else uses the connections.
func (s *session) passNotifications() (stop func()) {
	var stops []func()
	for _, p := range s.txn.parts {
		stops = append(stops, s.watchConnection(p))
	}
	return func() {
		for _, f := range stops {
			f()
		}
	}
}

func (s *session) watchConnection(p *participant) (stop func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			if _, err := p.conn.Stream.Peek(5); err != nil {
				return
			}
			typ, msg, err := p.conn.Stream.Next()
			if err != nil {
				return
			}
			switch typ {
			case 'A', 'N':
				if typ == 'A' {
					s.ownNotification(p.conn, msg)
				}
				s.client.Append(msg)
				if s.client.Flush() != nil {
					return
				}
			case 'S':
				p.conn.ParameterStatus(msg)
			default:
				p.conn.Broken = true
				return
			}
		}
	}()
	return func() {
		_ = p.conn.Stream.Conn.SetReadDeadline(time.Unix(1, 0))
		<-done
		_ = p.conn.Stream.Conn.SetReadDeadline(time.Time{})
	}
}

// passAsides passes on what is not about the statement in an answer: notices and notifications.
func (s *session) passAsides(answer []byte) {
	for len(answer) >= 5 {
		size := min(1+int(binary.BigEndian.Uint32(answer[1:])), len(answer))
		if answer[0] == 'A' || answer[0] == 'N' {
			s.client.Append(answer[:size])
		}
		answer = answer[size:]
	}
}
