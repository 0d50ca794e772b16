package host

import (
	"bufio"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// The bounds of the proof that opens a TCP connection.
const (
	proofTime = time.Second // for the whole of it
	maxProof  = 1 << 10     // bytes of each side
	nonceSize = 32          // bytes, sent as hexadecimal digits
)

// The roles in a proof, so that no side can return what the other one has sent.
const (
	roleCaller = "caller"
	roleDaemon = "daemon"
)

// A prover is one side of the proof that opens a TCP connection: both sides know the token. The
// token does not cross the connection, and the Hello follows only once both have proved it:
//
//	caller: {"pmcp":1,"nonce":C}
//	daemon: {"nonce":S}
//	caller: {"proof":HMAC-SHA256(token, "caller C S")}
//	daemon: {"proof":HMAC-SHA256(token, "daemon C S")}
//
// C and S are random, of 64 hexadecimal digits each, as are the proofs. The caller proves first: a
// daemon gives strangers nothing with which they could test guesses of the token. In place of
// either line, the daemon may send an answer that says why it refuses.
type prover struct {
	c              net.Conn
	in             *bufio.Reader
	token          string
	caller, daemon string // the nonces
}

// A proofLine is a line of a proof.
type proofLine struct {
	Protocol int    `json:"pmcp,omitempty"`
	Nonce    string `json:"nonce,omitempty"`
	Proof    string `json:"proof,omitempty"`
	Error    string `json:"error,omitempty"`
	Busy     bool   `json:"busy,omitempty"`
}

func newProver(c net.Conn, token string) *prover {
	return &prover{c: c, in: bufio.NewReaderSize(io.LimitReader(c, maxProof), maxProof), token: token}
}

func newNonce() string {
	var raw [nonceSize]byte
	_, _ = rand.Read(raw[:]) // never fails
	return hex.EncodeToString(raw[:])
}

// proof returns what proves that the side with that role knows the token.
func (p *prover) proof(role string) string {
	mac := hmac.New(sha256.New, []byte(p.token))
	fmt.Fprintf(mac, "%s %s %s", role, p.caller, p.daemon)
	return hex.EncodeToString(mac.Sum(nil))
}

func (p *prover) proves(l proofLine, role string) bool {
	return hmac.Equal([]byte(l.Proof), []byte(p.proof(role))) // in constant time
}

func (p *prover) send(l proofLine) error {
	line, err := json.Marshal(l)
	if err == nil {
		_, err = p.c.Write(append(line, '\n'))
	}
	return err
}

// errNotProof means that a peer sent something else than a line of the proof.
var errNotProof = errors.New("it is not a line of pmcp's proof")

// receive reads the peer's next line, after which nothing may come yet.
func (p *prover) receive() (l proofLine, err error) {
	raw, err := p.in.ReadSlice('\n')
	switch {
	case len(raw) > 0 && (errors.Is(err, bufio.ErrBufferFull) || errors.Is(err, io.EOF)):
		return l, fmt.Errorf("%w: no line end within %d bytes", errNotProof, maxProof)
	case err != nil:
		return l, err
	case p.in.Buffered() > 0 || json.Unmarshal(raw, &l) != nil:
		return l, errNotProof
	}
	return l, nil
}

// interrupt makes the reads and writes of c fail once ctx ends. stop undoes that, and reports false
// if it is too late.
func interrupt(ctx context.Context, c net.Conn) (stop func() bool) {
	return context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })
}

var (
	// errToken means that a caller does not know the token.
	errToken = errors.New("PM_DAEMON_TOKEN is missing or not the daemon's")
	// errNoProof means that a caller does not begin with the proof.
	errNoProof = errors.New("a TCP connection begins with a proof of PM_DAEMON_TOKEN, which an older pmcp does not send")
)

// admit returns nil once a caller has proved that it knows the token, has a slot of free, and has
// the daemon's own proof. ctx bounds all this.
func (h *Host) admit(ctx context.Context, c net.Conn, free chan struct{}) error {
	if h.o.Token == "" {
		return errors.New("TCP needs PM_DAEMON_TOKEN")
	}
	stop := interrupt(ctx, c)
	defer stop()
	p := newProver(c, h.o.Token)
	l, err := p.receive()
	switch {
	case err != nil:
		return fmt.Errorf("%w: %w", errNoProof, err)
	case l.Protocol != protocol || len(l.Nonce) != 2*nonceSize:
		return errNoProof
	}
	p.caller, p.daemon = l.Nonce, newNonce()
	if err := p.send(proofLine{Nonce: p.daemon}); err != nil {
		return err
	}
	if l, err = p.receive(); err != nil {
		return fmt.Errorf("%w: %w", errToken, err)
	}
	if !p.proves(l, roleCaller) {
		return errToken
	}
	select {
	case free <- struct{}{}:
	default:
		return errBusy
	}
	if err = p.send(proofLine{Proof: p.proof(roleDaemon)}); err == nil && !stop() {
		err = ctx.Err()
	}
	if err != nil {
		<-free
	}
	return err
}

// prove returns nil once the daemon at the other end of c and this process have proved to each other that
// they know the token. ctx bounds this.
func prove(ctx context.Context, c net.Conn, token string) error {
	if token == "" {
		return errors.New("a daemon takes TCP connections only with PM_DAEMON_TOKEN, which is not set")
	}
	stop := interrupt(ctx, c)
	defer stop()
	err := newProver(c, token).proveAsCaller()
	switch {
	case errors.Is(err, errBusy):
		return err
	case ctx.Err() != nil || err == nil && !stop():
		err = fmt.Errorf("the proof took too long: %w", ctx.Err())
	case errors.Is(err, io.EOF):
		err = fmt.Errorf("%w: it closed the connection", errNoAnswer) // a daemon that ends, too
	}
	if err != nil {
		return fmt.Errorf("the program that listens on %s did not prove that it knows PM_DAEMON_TOKEN: %w", c.RemoteAddr(), err)
	}
	return nil
}

func (p *prover) proveAsCaller() error {
	p.caller = newNonce()
	if err := p.send(proofLine{Protocol: protocol, Nonce: p.caller}); err != nil {
		return err
	}
	l, err := p.receive()
	switch {
	case err != nil:
		return err
	case l.Busy:
		return errBusy
	case len(l.Nonce) != 2*nonceSize:
		return fmt.Errorf("it is a pmcp older than this one, or another program (it answered %.200q)", l.Error)
	}
	p.daemon = l.Nonce
	if err := p.send(proofLine{Proof: p.proof(roleCaller)}); err != nil {
		return err
	}
	l, err = p.receive()
	switch {
	case err != nil:
		return err
	case l.Busy:
		return errBusy
	case l.Error != "":
		return fmt.Errorf("it answered %.200q", l.Error)
	case !p.proves(l, roleDaemon):
		return errors.New("its proof is wrong")
	}
	return nil
}
