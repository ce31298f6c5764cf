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

// Events of a history; operations without an answer return at its end.
func lockEvents(path string) []porcupine.Event {
	var events []porcupine.Event
	open := map[int]int{}
	unknown := map[int]int{}
	for id, fields := range lines(path) {
		process, _ := strconv.Atoi(fields[0])
		token, _ := strconv.Atoi(fields[4])
		switch fields[1] {
		case "invoke":
			value := call{process, fields[2] == "release", fields[3] == "read"}
			events = append(events, porcupine.Event{ClientId: process, Kind: porcupine.CallEvent, Value: value, Id: id})
			open[process] = id
		case "info":
			unknown[process] = open[process]
			delete(open, process)
		default:
			value := answer{map[string]kind{"ok": ok, "fail": fail}[fields[1]], token}
			events = append(events, porcupine.Event{ClientId: process, Kind: porcupine.ReturnEvent, Value: value, Id: open[process]})
			delete(open, process)
		}
	}
	for _, left := range []map[int]int{unknown, open} {
		for process, id := range left {
			events = append(events, porcupine.Event{ClientId: process, Kind: porcupine.ReturnEvent, Value: answer{info, 0}, Id: id})
		}
	}
	// Porcupine wants numbers without gaps.
	dense := map[int]int{}
	for at := range events {
		if _, known := dense[events[at].Id]; !known {
			dense[events[at].Id] = len(dense)
		}
		events[at].Id = dense[events[at].Id]
	}
	return events
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
	var events []porcupine.Event
	open := map[int]int{}
	id := 0
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
			events = append(events, porcupine.Event{ClientId: process, Kind: porcupine.CallEvent, Value: in, Id: id})
			open[process] = id
			id++
		case kind == ":info" || value == ":timed-out" && f != ":read":
			// It stays open.
		case value == ":timed-out":
			out := registerAnswer{unknown: true}
			events = append(events, porcupine.Event{ClientId: process, Kind: porcupine.ReturnEvent, Value: out, Id: open[process]})
			delete(open, process)
		default:
			out := registerAnswer{ok: kind == ":ok", value: number(value)}
			events = append(events, porcupine.Event{ClientId: process, Kind: porcupine.ReturnEvent, Value: out, Id: open[process]})
			delete(open, process)
		}
	}
	for process, id := range open {
		events = append(events, porcupine.Event{ClientId: process, Kind: porcupine.ReturnEvent, Value: registerAnswer{unknown: true}, Id: id})
	}
	return events
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
	var events []porcupine.Event
	open := map[string]int{}
	id := 0
	scanner := bufio.NewScanner(file)
	for scanner.Scan() {
		fields := storeLine.FindStringSubmatch(scanner.Text())
		if fields == nil {
			panic(scanner.Text())
		}
		process, _ := strconv.Atoi(fields[1])
		if fields[2] == ":invoke" {
			call := storeCall{fields[3], fields[4], fields[5]}
			events = append(events, porcupine.Event{ClientId: process, Kind: porcupine.CallEvent, Value: call, Id: id})
			open[fields[1]] = id
			id++
		} else {
			events = append(events, porcupine.Event{ClientId: process, Kind: porcupine.ReturnEvent, Value: fields[5], Id: open[fields[1]]})
			delete(open, fields[1])
		}
	}
	if len(open) > 0 {
		panic("an operation without an answer")
	}
	return events
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
