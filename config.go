package main

import (
	"cmp"
	"encoding"
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strconv"

	"github.com/alecthomas/kong"
	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"

	"millpond/settings"
)

// configFile is a settings file: TOML whose keys are the flags of serve without their dashes. A flag counts before it, and an environment variable too.
type configFile struct {
	name   string
	values map[string]configValue
	used   map[string]string // flag → where in the file its value stands; of those that the file decided
}

type configValue struct {
	value any // string, bool, or []any of strings
	line  int
	items []int // the lines of a list's items
}

// maxConfig bounds a settings file, in bytes. The lists of a thousand hosts that it may name are a tenth of it.
const maxConfig = 1 << 20

// readConfig reads a settings file as far as it is TOML of the right shape. Errors say the line.
func readConfig(name string) (*configFile, error) {
	data, err := settings.ReadFile(name, maxConfig)
	if err != nil {
		return nil, fmt.Errorf("read the settings file: %w", err)
	}
	f := &configFile{name: name, values: make(map[string]configValue), used: make(map[string]string)}
	var values map[string]any
	if err := toml.Unmarshal(data, &values); err != nil {
		var at *toml.DecodeError
		if errors.As(err, &at) {
			line, _ := at.Position()
			return nil, f.wrong(line, err)
		}
		return nil, fmt.Errorf("read the settings file %s: %w", name, err)
	}
	// toml says where an error is, but not where a value is; its parser does.
	p := unstable.Parser{}
	p.Reset(data)
	for p.NextExpression() {
		e := p.Expression()
		keys := e.Key()
		keys.Next()
		key := keys.Node()
		line := p.Shape(key.Raw).Start.Line
		if e.Kind != unstable.KeyValue || keys.Next() {
			return nil, f.wrong(line, errors.New("settings stand at the top level, without tables and dots"))
		}
		v := configValue{value: values[string(key.Data)], line: line}
		switch n := v.value.(type) {
		case int64:
			v.value = strconv.FormatInt(n, 10)
		case string, bool, []any:
		default:
			return nil, f.wrong(line, fmt.Errorf("%s: want a text, a number, true or false, or a list of texts", key.Data))
		}
		for items := e.Value().Children(); e.Value().Kind == unstable.Array && items.Next(); {
			at := p.Shape(items.Node().Raw).Start.Line
			if items.Node().Kind != unstable.String {
				return nil, f.wrong(cmp.Or(at, line), fmt.Errorf("%s: want a list of texts", key.Data))
			}
			v.items = append(v.items, at)
		}
		f.values[string(key.Data)] = v
	}
	if err := p.Error(); err != nil { // toml took it
		return nil, fmt.Errorf("read the settings file %s: %w", name, err)
	}
	return f, nil
}

func (f *configFile) at(line int) string { return f.name + ":" + strconv.Itoa(line) }

func (f *configFile) wrong(line int, err error) error {
	return fmt.Errorf("%s: %w", f.at(line), err)
}

// notInConfig are flags that cannot stand in the file.
var notInConfig = []string{"help", "config"}

// check judges every value of the file as its flag would. The error names each line that is wrong.
func (f *configFile) check(flags []*kong.Flag) error {
	type problem struct {
		line int
		err  error
	}
	var problems []problem
	for name, v := range f.values {
		i := slices.IndexFunc(flags, func(flag *kong.Flag) bool {
			return flag.Name == name && !flag.Hidden && !slices.Contains(notInConfig, name)
		})
		if i < 0 {
			problems = append(problems, problem{v.line, fmt.Errorf("there is no setting %q; millpond serve --help lists them", name)})
			continue
		}
		if list, ok := v.value.([]any); ok && flags[i].IsSlice() {
			for n, item := range list { // one by one, to say which is wrong
				u, reads := reflect.New(flags[i].Target.Type().Elem()).Interface().(encoding.TextUnmarshaler)
				if !reads {
					continue // a list of any texts
				}
				err := u.UnmarshalText([]byte(item.(string)))
				if secret, ok := u.(checker); ok && err == nil {
					err = secret.check()
				}
				if err != nil {
					problems = append(problems, problem{v.items[n], fmt.Errorf("%s: %w", name, err)})
				}
			}
		} else if err := decodes(flags[i], v.value); err != nil {
			problems = append(problems, problem{v.line, err})
		}
	}
	slices.SortFunc(problems, func(a, b problem) int { return cmp.Compare(a.line, b.line) })
	var all []error
	for _, p := range problems {
		all = append(all, f.wrong(p.line, p.err))
	}
	return errors.Join(all...)
}

// checker is a value that does not say what is wrong with it as it is read: what is wrong with a variable of the environment is told with its value, and this
// one may hold a password.
type checker interface{ check() error }

// decodes reports what is wrong with a value for a flag.
func decodes(flag *kong.Flag, value any) error {
	text, isText := value.(string)
	if flag.Enum != "" && (!isText || !flag.EnumMap()[text]) {
		return fmt.Errorf("%s: must be one of %s", flag.Name, flag.Enum)
	}
	if _, list := value.([]any); list && !flag.IsSlice() {
		return fmt.Errorf("%s: want one value, not a list", flag.Name)
	}
	if _, is := value.(bool); is != flag.IsBool() {
		return fmt.Errorf("%s: want %s", flag.Name, map[bool]string{true: "true or false", false: "a text"}[flag.IsBool()])
	}
	scratch := reflect.New(flag.Target.Type()).Elem()
	err := flag.Mapper.Decode(&kong.DecodeContext{Value: flag.Value, Scan: kong.Scan().PushTyped(value, kong.FlagValueToken)}, scratch)
	each := []any{scratch.Addr().Interface()}
	for i := 0; flag.IsSlice() && i < scratch.Len(); i++ {
		each = append(each, scratch.Index(i).Addr().Interface())
	}
	for _, v := range each {
		if secret, ok := v.(checker); ok && err == nil {
			err = secret.check()
		}
	}
	if err != nil {
		return fmt.Errorf("%s: %w", flag.Name, err)
	}
	return nil
}

// Validate implements kong.Resolver. check has done it.
func (f *configFile) Validate(*kong.Application) error { return nil }

// Resolve implements kong.Resolver.
func (f *configFile) Resolve(_ *kong.Context, _ *kong.Path, flag *kong.Flag) (any, error) {
	v, ok := f.values[flag.Name]
	if !ok || slices.Contains(notInConfig, flag.Name) || slices.ContainsFunc(flag.Envs, isSet) {
		return nil, nil
	}
	f.used[flag.Name] = f.at(v.line)
	return v.value, nil
}

// isSet reports whether a variable says something: an empty one is what container files make of one that nobody set.
func isSet(variable string) bool { return os.Getenv(variable) != "" }
