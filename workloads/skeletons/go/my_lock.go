// A lock client for harness. Put your lock in the place of the calls to Redis in Client; the rest is the protocol.
package main

import (
	"bufio"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
	"unsafe"
)

// The promises of this lock: docs/client-protocol.md has the words.
var contract = map[string]any{
	"lease": true, "renews": false, "extends": true, "fifo": false, "tries": true, "wakes": "polls",
	"owner": "server", "token": "none", "keys": "harness:{lock}", "value": "string",
}

const compareAndDelete = "if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('del',KEYS[1]) else return 0 end"
const compareAndExtend = "if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('pexpire',KEYS[1],ARGV[2]) else return 0 end"

// Refused says that it surely did not happen. Any other error: it is not known whether it happened.
type Refused string

func (reason Refused) Error() string { return string(reason) }

func refused(err error) bool {
	var reason Refused
	return errors.As(err, &reason)
}

// Redis is one connection; a call that fails or times out closes it, so that no answer is taken for another's.
type Redis struct {
	conn    net.Conn
	read    *bufio.Reader
	timeout time.Duration
}

func dial(endpoint string, timeout time.Duration) (*Redis, error) {
	conn, err := net.DialTimeout("tcp", endpoint, timeout)
	if err != nil {
		return nil, err
	}
	return &Redis{conn, bufio.NewReader(conn), timeout}, nil
}

// call answers a string, an int64 or nil.
func (redis *Redis) call(words ...string) (any, error) {
	var request strings.Builder
	fmt.Fprintf(&request, "*%d\r\n", len(words))
	for _, word := range words {
		fmt.Fprintf(&request, "$%d\r\n%s\r\n", len(word), word)
	}
	if err := redis.conn.SetDeadline(time.Now().Add(redis.timeout)); err != nil {
		return nil, err
	}
	if _, err := io.WriteString(redis.conn, request.String()); err != nil {
		return nil, err
	}
	line, err := redis.read.ReadString('\n')
	if err != nil {
		return nil, err
	}
	kind, text := line[0], strings.TrimRight(line[1:], "\r\n")
	switch kind {
	case ':':
		return strconv.ParseInt(text, 10, 64)
	case '-':
		return nil, Refused(text)
	case '$':
		size, err := strconv.Atoi(text)
		if err != nil || size < 0 {
			return nil, err
		}
		value := make([]byte, size+2)
		if _, err := io.ReadFull(redis.read, value); err != nil {
			return nil, err
		}
		return string(value[:size]), nil
	default:
		return text, nil
	}
}

type hold struct {
	value string
	timer *time.Timer
}

type leftover struct{ lock, value string }

// Client is one client of harness.
type Client struct {
	number    uint64
	endpoint  string
	lease     time.Duration
	redis     *Redis
	held      map[string]hold
	leftovers []leftover // of unknown operations
}

func open(number uint64, endpoint string, lease time.Duration) (*Client, error) {
	client := &Client{number: number, endpoint: endpoint, lease: lease, held: map[string]hold{}}
	_, err := client.call("PING") // `open` fails if there is no connection
	return client, err
}

func (client *Client) call(words ...string) (any, error) {
	if client.redis == nil {
		redis, err := dial(client.endpoint, client.lease/3)
		if err != nil {
			return nil, err
		}
		client.redis = redis
	}
	answer, err := client.redis.call(words...)
	if err != nil && !refused(err) {
		client.redis.conn.Close()
		client.redis = nil
	}
	return answer, err
}

func (client *Client) remove(lock, value string) (bool, error) {
	removed, err := client.call("EVAL", compareAndDelete, "1", "harness:"+lock, value)
	if err != nil && !refused(err) {
		client.leftovers = append(client.leftovers, leftover{lock, value}) // it may have happened or not
	}
	return removed == int64(1), err
}

func (client *Client) acquire(lock string, wait time.Duration) (map[string]any, error) {
	deadline := time.Now().Add(wait)
	for len(client.leftovers) > 0 {
		last := len(client.leftovers) - 1
		left := client.leftovers[last]
		client.leftovers = client.leftovers[:last]
		if _, err := client.remove(left.lock, left.value); err != nil {
			return nil, Refused("cleaning up first: " + err.Error()) // the lock was not asked for yet
		}
	}
	random := make([]byte, 16)
	if _, err := rand.Read(random); err != nil {
		return nil, Refused(err.Error())
	}
	value := hex.EncodeToString(random)
	for {
		asked := time.Now()
		lease := strconv.FormatInt(client.lease.Milliseconds(), 10)
		answer, err := client.call("SET", "harness:"+lock, value, "NX", "PX", lease)
		if err != nil {
			if !refused(err) {
				client.leftovers = append(client.leftovers, leftover{lock, value}) // it may have happened or not
			}
			return nil, err
		}
		if answer != nil {
			return client.hold(lock, value, asked)
		}
		if !time.Now().Before(deadline) {
			if wait > 0 {
				return nil, Refused("timeout")
			}
			return nil, Refused("busy")
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func (client *Client) hold(lock, value string, asked time.Time) (map[string]any, error) {
	if !client.believe(lock, value, asked) {
		if _, err := client.remove(lock, value); err != nil {
			return nil, err
		}
		return nil, Refused("timeout")
	}
	return map[string]any{"owner": value}, nil
}

func (client *Client) believe(lock, value string, asked time.Time) bool {
	// counted from before the request was sent, so that it ends earlier here than on the server
	left := client.lease*85/100 - time.Since(asked)
	if left <= 0 {
		return false
	}
	timer := time.AfterFunc(left, func() {
		say(map[string]any{
			"type": "signal", "client": client.number, "f": "lost", "lock": lock, "at": monotonic(), "cause": "lease ends",
		})
	})
	client.held[lock] = hold{value, timer}
	return true
}

func (client *Client) extend(lock string) (map[string]any, error) {
	held, there := client.held[lock]
	if !there {
		return nil, Refused("not held")
	}
	asked := time.Now()
	lease := strconv.FormatInt(client.lease.Milliseconds(), 10)
	extended, err := client.call("EVAL", compareAndExtend, "1", "harness:"+lock, held.value, lease)
	if err == nil && extended != int64(1) {
		err = Refused("not held: it expired")
	}
	if err != nil {
		return nil, err
	}
	held.timer.Stop()
	client.believe(lock, held.value, asked)
	return nil, nil
}

func (client *Client) release(lock string) (map[string]any, error) {
	held, there := client.held[lock]
	if !there {
		return nil, Refused("not held")
	}
	delete(client.held, lock)
	held.timer.Stop()
	removed, err := client.remove(lock, held.value)
	if err == nil && !removed {
		err = Refused("not held: it expired")
	}
	return nil, err
}

func (client *Client) close() (map[string]any, error) {
	for lock := range client.held {
		if _, err := client.release(lock); err != nil {
			return nil, err
		}
	}
	return nil, nil
}

type request struct {
	ID        *uint64  `json:"id"`
	Client    *uint64  `json:"client"`
	Op        *string  `json:"op"`
	Endpoints []string `json:"endpoints"`
	LeaseMs   int64    `json:"lease_ms"`
	Lock      string   `json:"lock"`
	WaitMs    int64    `json:"wait_ms"`
}

func perform(clients map[uint64]*Client, number uint64, op string, asked request) (map[string]any, error) {
	if op == "open" && len(asked.Endpoints) > 0 {
		opened, err := open(number, asked.Endpoints[0], time.Duration(asked.LeaseMs)*time.Millisecond)
		if err != nil {
			return nil, err
		}
		clients[number] = opened
		return map[string]any{"contract": contract}, nil
	}
	client, there := clients[number]
	if !there {
		return nil, Refused("this client is not open")
	}
	switch op {
	case "acquire":
		return client.acquire(asked.Lock, time.Duration(asked.WaitMs)*time.Millisecond)
	case "release":
		return client.release(asked.Lock)
	case "extend":
		return client.extend(asked.Lock)
	case "close":
		delete(clients, number)
		return client.close()
	default:
		return nil, Refused("no such operation: " + op)
	}
}

var output sync.Mutex

func say(message map[string]any) {
	line, err := json.Marshal(message)
	if err != nil {
		panic(err)
	}
	output.Lock()
	defer output.Unlock()
	os.Stdout.Write(append(line, '\n'))
}

// monotonic is CLOCK_MONOTONIC in nanoseconds, which package time does not show.
func monotonic() int64 {
	var now syscall.Timespec
	const clockMonotonic = 1
	syscall.Syscall(syscall.SYS_CLOCK_GETTIME, clockMonotonic, uintptr(unsafe.Pointer(&now)), 0)
	return now.Nano()
}

func main() {
	clients := map[uint64]*Client{}
	requests := bufio.NewScanner(os.Stdin)
	requests.Buffer(nil, 1<<20) // a line has at most 64 KiB
	for requests.Scan() {
		if strings.TrimSpace(requests.Text()) == "" {
			continue
		}
		var asked request
		err := json.Unmarshal(requests.Bytes(), &asked)
		if err != nil || asked.ID == nil || asked.Client == nil || asked.Op == nil {
			fmt.Fprintln(os.Stderr, "no request:", requests.Text()) // it has no number to answer with
			continue
		}
		reply := map[string]any{"type": "ok", "id": *asked.ID}
		fields, err := perform(clients, *asked.Client, *asked.Op, asked)
		for name, value := range fields {
			reply[name] = value
		}
		if refused(err) {
			reply["type"], reply["error"] = "fail", err.Error()
		} else if err != nil { // it is not known whether it happened
			reply["type"], reply["error"] = "info", err.Error()
		}
		say(reply)
	}
	for _, client := range clients {
		if _, err := client.close(); err != nil {
			fmt.Fprintln(os.Stderr, "what is held stays for its lease:", err)
		}
	}
}
