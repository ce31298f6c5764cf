// Porcupine (https://github.com/anishathalye/porcupine) on the histories of the checkers' bench, which runs this program and
// prints its times beside its own.
//
//	porcupine lock MODEL FILE SECONDS   a history of lines: process, kind, operation, mode, token
//	porcupine registers FOLDER SECONDS  the register logs that come with Porcupine, each by its path
//	porcupine stores FOLDER SECONDS     the histories of a key-value store that come with it
//
// Each line of output is a verdict and the least of a few times in nanoseconds.
package main

import (
	"bufio"
	"fmt"
	"math/bits"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

type call struct {
	process int
	release bool
	read    bool
}

type kind int

const (
	ok kind = iota
	fail
	info
)

type answer struct {
	kind  kind
	token int
}

// A lock's state: who holds it, as bits of processes where several may, and the largest token.
type state struct {
	holder  int
	holders uint64
	token   int
}

const free = -1

type sort int

const (
	owner sort = iota
	anonymous
	fenced
	shared
	permits
)

var sorts = map[string]sort{"mutex": anonymous, "fenced": fenced, "read-write": shared, "semaphore": permits}

func lockModel(name string) porcupine.Model {
	count := 1
	if at := strings.IndexByte(name, '='); at > 0 {
		count, _ = strconv.Atoi(name[at+1:])
		name = name[:at]
	}
	sort := sorts[name]
	step := func(st state, in call, out answer) (bool, state) {
		bit := uint64(1) << uint(in.process%64)
		if in.release {
			legal := sort != anonymous || st.holder != free
			st.holders &^= bit
			if sort == anonymous || st.holder == in.process {
				st.holder = free
			}
			return legal, st
		}
		possible := st.holder == free
		switch sort {
		case permits:
			possible = bits.OnesCount64(st.holders) < count
		case shared:
			possible = st.holder == free && (in.read || st.holders == 0)
		}
		if out.kind == fail {
			return !possible, st
		}
		if !possible {
			// An acquire of which no answer is known may have done nothing.
			return out.kind == info, st
		}
		if sort == fenced && out.kind == ok {
			if out.token <= st.token {
				return false, st
			}
			st.token = out.token
		}
		if sort == permits || sort == shared && in.read {
			st.holders |= bit
		} else {
			st.holder = in.process
		}
		return true, st
	}
	return porcupine.Model{
		Init: func() interface{} { return state{holder: free} },
		Step: func(st, in, out interface{}) (bool, interface{}) {
			legal, next := step(st.(state), in.(call), out.(answer))
			return legal, next
		},
	}
}

// The events of a history in their order; Porcupine wants the numbers of calls without gaps.
type recorder struct {
	events []porcupine.Event
	open   map[int]int
	calls  int
}

func (r *recorder) call(process int, value interface{}) {
	r.events = append(r.events, porcupine.Event{ClientId: process, Kind: porcupine.CallEvent, Value: value, Id: r.calls})
	r.open[process] = r.calls
	r.calls++
}

func (r *recorder) answer(process int, value interface{}) {
	r.events = append(r.events, porcupine.Event{ClientId: process, Kind: porcupine.ReturnEvent, Value: value, Id: r.open[process]})
	delete(r.open, process)
}

// Operations without an answer return at the end.
func (r *recorder) end(unknown interface{}) []porcupine.Event {
	for process := range r.open {
		r.answer(process, unknown)
	}
	return r.events
}

func lockEvents(path string) []porcupine.Event {
	history := recorder{open: map[int]int{}}
	for _, fields := range lines(path) {
		process, _ := strconv.Atoi(fields[0])
		token, _ := strconv.Atoi(fields[4])
		switch fields[1] {
		case "invoke":
			history.call(process, call{process, fields[2] == "release", fields[3] == "read"})
		case "info":
			// It stays open: this process calls nothing more.
		default:
			history.answer(process, answer{map[string]kind{"ok": ok, "fail": fail}[fields[1]], token})
		}
	}
	return history.end(answer{info, 0})
}

const none = -1000000

type registerCall struct{ op, from, to int }
type registerAnswer struct {
	unknown, ok bool
	value       int
}

// The register of etcd's logs, as Porcupine's own test has it: a compare-and-set that failed found another value.
var register = porcupine.Model{
	Init: func() interface{} { return none },
	Step: func(st, in, out interface{}) (bool, interface{}) {
		value, call, answer := st.(int), in.(registerCall), out.(registerAnswer)
		switch call.op {
		case 0:
			return answer.unknown || answer.value == value, value
		case 1:
			return true, call.to
		}
		legal := answer.unknown || answer.ok == (call.from == value)
		if call.from == value {
			value = call.to
		}
		return legal, value
	},
}

func number(text string) int {
	number, err := strconv.Atoi(strings.Trim(text, "[]"))
	if err != nil {
		return none
	}
	return number
}

func registerEvents(path string) []porcupine.Event {
	history := recorder{open: map[int]int{}}
	for _, fields := range lines(path) {
		if len(fields) < 7 || fields[1] != "jepsen.util" {
			continue
		}
		process, err := strconv.Atoi(fields[3])
		if err != nil {
			continue
		}
		kind, f, value := fields[4], fields[5], fields[6]
		switch {
		case kind == ":invoke":
			in := registerCall{to: number(value)}
			switch f {
			case ":write":
				in.op = 1
			case ":cas":
				in = registerCall{2, number(value), number(fields[7])}
			}
			history.call(process, in)
		case kind == ":info" || value == ":timed-out" && f != ":read":
			// It stays open.
		case value == ":timed-out":
			history.answer(process, registerAnswer{unknown: true})
		default:
			history.answer(process, registerAnswer{ok: kind == ":ok", value: number(value)})
		}
	}
	return history.end(registerAnswer{unknown: true})
}

type storeCall struct{ f, key, value string }

// One key of a store: histories are partitioned by it.
var store = porcupine.Model{
	PartitionEvent: func(history []porcupine.Event) [][]porcupine.Event {
		keys := map[int]string{}
		parts := map[string][]porcupine.Event{}
		for _, event := range history {
			if event.Kind == porcupine.CallEvent {
				keys[event.Id] = event.Value.(storeCall).key
			}
			key := keys[event.Id]
			parts[key] = append(parts[key], event)
		}
		var all [][]porcupine.Event
		for _, part := range parts {
			all = append(all, part)
		}
		return all
	},
	Init: func() interface{} { return "" },
	Step: func(st, in, out interface{}) (bool, interface{}) {
		text, call := st.(string), in.(storeCall)
		switch call.f {
		case ":get":
			return out.(string) == text, text
		case ":put":
			return true, call.value
		}
		return true, text + call.value
	},
}

var storeLine = regexp.MustCompile(`^\{:process (\d+), :type (:\w+), :f (:\w+), :key "([^"]*)", :value (?:"([^"]*)"|nil)\}$`)

func storeEvents(path string) []porcupine.Event {
	file, err := os.Open(path)
	if err != nil {
		panic(err)
	}
	defer file.Close()
	history := recorder{open: map[int]int{}}
	scanner := bufio.NewScanner(file)
	for scanner.Scan() {
		fields := storeLine.FindStringSubmatch(scanner.Text())
		if fields == nil {
			panic(scanner.Text())
		}
		process, _ := strconv.Atoi(fields[1])
		if fields[2] == ":invoke" {
			history.call(process, storeCall{fields[3], fields[4], fields[5]})
		} else {
			history.answer(process, fields[5])
		}
	}
	if len(history.open) > 0 {
		panic("an operation without an answer")
	}
	return history.events
}

func lines(path string) [][]string {
	file, err := os.Open(path)
	if err != nil {
		panic(err)
	}
	defer file.Close()
	var all [][]string
	scanner := bufio.NewScanner(file)
	for scanner.Scan() {
		all = append(all, strings.Fields(scanner.Text()))
	}
	return all
}

// The verdict and the least of a few times: more of them where they are short.
func measured(model porcupine.Model, events []porcupine.Event, limit time.Duration) string {
	verdict, least := porcupine.Unknown, time.Duration(1<<62)
	for spent, runs := time.Duration(0), 0; runs < 5 && (runs == 0 || spent < limit/5); runs++ {
		started := time.Now()
		verdict = porcupine.CheckEventsTimeout(model, events, limit)
		took := time.Since(started)
		spent += took
		if took < least {
			least = took
		}
	}
	return fmt.Sprintf("%s %d", verdict, least.Nanoseconds())
}

func main() {
	seconds, err := strconv.Atoi(os.Args[len(os.Args)-1])
	if err != nil {
		panic(err)
	}
	limit := time.Duration(seconds) * time.Second
	switch os.Args[1] {
	case "lock":
		fmt.Println(measured(lockModel(os.Args[2]), lockEvents(os.Args[3]), limit))
	case "registers":
		paths, _ := filepath.Glob(filepath.Join(os.Args[2], "*.log"))
		for _, path := range paths {
			fmt.Println(path, measured(register, registerEvents(path), limit))
		}
	case "stores":
		paths, _ := filepath.Glob(filepath.Join(os.Args[2], "*.txt"))
		for _, path := range paths {
			fmt.Println(path, measured(store, storeEvents(path), limit))
		}
	}
}
