// A judge of linearizability with Porcupine. It reads operations as lines of JSON, and prints for
// each key a line with Porcupine's verdict: Ok, Illegal, or Unknown after the time limit.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"time"

	"github.com/anishathalye/porcupine"
)

const timeLimit = 10 * time.Second // for each key

type operation struct {
	Key      string
	Kind     string  // of a register: read, write, swap; of a log: append, position
	Value    *string // written
	Expected *string // by a swap
	Found    *string // by a read or a swap
	Offset   int64   // the end of the append, or of the log that was read
	Invoked  int64
	Complete *int64 // absent: the outcome is unknown
	Until    *int64 // the time by which an operation of unknown outcome took effect; absent: never
}

// unwritten is the first state of a register; no value of a test equals it.
const unwritten = "\x00unwritten"

func text(value *string) string {
	if value == nil {
		return unwritten
	}
	return *value
}

// register is a map of one key: an operation of unknown outcome takes effect at any moment.
var register = porcupine.Model{
	Init: func() interface{} { return unwritten },
	Step: func(state, input, _ interface{}) (bool, interface{}) {
		one := input.(operation)
		isRight := one.Complete == nil || text(one.Found) == state
		switch {
		case one.Kind == "read":
			return isRight, state
		case one.Kind == "write":
			return true, text(one.Value)
		case text(one.Expected) == state:
			return isRight, text(one.Value)
		default:
			return isRight, state
		}
	},
}

// log has the end offset of the last operation as its state. Records without an operation, such as
// those of a new leader, may lie between two operations.
var log = porcupine.Model{
	Init: func() interface{} { return int64(0) },
	Step: func(state, input, _ interface{}) (bool, interface{}) {
		one := input.(operation)
		if one.Kind == "append" {
			return one.Offset > state.(int64), one.Offset
		}
		return one.Offset >= state.(int64), one.Offset
	},
}

func main() {
	histories := map[string][]porcupine.Operation{}
	var keys []string
	lines := json.NewDecoder(bufio.NewReader(os.Stdin))
	for lines.More() {
		var one operation
		if err := lines.Decode(&one); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		end := int64(math.MaxInt64)
		if one.Complete != nil {
			end = *one.Complete
		} else if one.Until != nil {
			end = *one.Until
		}
		if histories[one.Key] == nil {
			keys = append(keys, one.Key)
		}
		histories[one.Key] = append(histories[one.Key],
			porcupine.Operation{Input: one, Call: one.Invoked, Return: end})
	}
	for _, key := range keys {
		model := register
		switch histories[key][0].Input.(operation).Kind {
		case "append", "position":
			model = log
		}
		verdict := porcupine.CheckOperationsTimeout(model, histories[key], timeLimit)
		line, _ := json.Marshal(map[string]string{"key": key, "verdict": string(verdict)})
		fmt.Println(string(line))
	}
}
