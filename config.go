package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"

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

// wrongLine is what is wrong with a line of the file, which it names.
type wrongLine struct {
	at  string
	err error
}

func (e *wrongLine) Error() string { return e.at + ": " + e.err.Error() }
func (e *wrongLine) Unwrap() error { return e.err }

func (f *configFile) wrong(line int, err error) error { return &wrongLine{f.at(line), err} }

// notInConfig are flags that cannot stand in the file.
var notInConfig = []string{"help", "config"}

// checker is a setting's value, or an item of a list, that can be wrong. Reading it never fails: what is wrong with a value is asked where it is known where the value
// stands, and kong would tell it with the value of a variable, which may be a password.
type checker interface{ check() error }

// fault is what is wrong with a setting.
type fault struct {
	item int // of a list; 0 for one value
	err  error
}

var errEmpty = errors.New("it is empty: give it a value, or leave it out")

// emptyItems keeps what kong would drop of the text of a list: that it is empty, or ends with a comma. faults refuses it.
var emptyItems = kong.KindMapper(reflect.Slice, kong.MapperFunc(func(ctx *kong.DecodeContext, target reflect.Value) error {
	token := ctx.Scan.Pop()
	if text, ok := token.Value.(string); ok && (text == "" || strings.HasSuffix(text, ",")) {
		token.Value = text + ","
	}
	ctx.Scan.PushToken(token)
	return lists.Decode(ctx, target)
}))

// lists is how kong reads a list.
var lists = kong.NewRegistry().RegisterDefaults().ForType(reflect.TypeFor[[]string]())

// faults judges a setting's value. It is the one place that does, wherever the value stands.
func faults(value reflect.Value) (all []fault) {
	if value.Kind() != reflect.Slice {
		if value.Kind() == reflect.String && value.Len() == 0 {
			return []fault{{0, errEmpty}}
		}
		if c, ok := value.Addr().Interface().(checker); ok {
			if err := c.check(); err != nil {
				return []fault{{0, err}}
			}
		}
		return nil
	}
	if value.Len() > settings.MaxEntries {
		return []fault{{settings.MaxEntries, fmt.Errorf("this is one too many of %d: %d are the most", value.Len(), settings.MaxEntries)}}
	}
	for i := range value.Len() {
		if item := value.Index(i); item.Kind() == reflect.String && item.Len() == 0 {
			all = append(all, fault{i, errEmpty})
			continue
		}
		if c, ok := value.Index(i).Addr().Interface().(checker); ok {
			if err := c.check(); err != nil {
				all = append(all, fault{i, err})
			}
		}
	}
	return all
}

// check judges every value of the file, also of those that a flag or a variable replaces. The error names each line that is wrong.
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
		for _, fault := range decode(flags[i], v.value) {
			problems = append(problems, problem{v.at(fault.item), fmt.Errorf("%s: %w", name, fault.err)})
		}
	}
	slices.SortFunc(problems, func(a, b problem) int { return cmp.Compare(a.line, b.line) })
	var all []error
	for _, p := range problems {
		all = append(all, f.wrong(p.line, p.err))
	}
	return errors.Join(all...)
}

// at returns the line of a list's item.
func (v configValue) at(item int) int {
	if item < len(v.items) {
		return v.items[item]
	}
	return v.line
}

// decode reads a value of the file as its flag would, and returns what is wrong with it.
func decode(flag *kong.Flag, value any) []fault {
	if _, list := value.([]any); list && !flag.IsSlice() {
		return []fault{{0, errors.New("want one value, not a list")}}
	}
	if _, is := value.(bool); is != flag.IsBool() {
		return []fault{{0, fmt.Errorf("want %s", map[bool]string{true: "true or false", false: "a text"}[flag.IsBool()])}}
	}
	scratch := reflect.New(flag.Target.Type()).Elem()
	if err := flag.Mapper.Decode(&kong.DecodeContext{Value: flag.Value, Scan: kong.Scan().PushTyped(value, kong.FlagValueToken)}, scratch); err != nil {
		return []fault{{0, err}}
	}
	return faults(scratch)
}

// origins tell where the value of each setting stands, for errors about it: --flag, VARIABLE, or FILE:LINE: and its name. What is in none is a default.
type origins map[string]func(item int) string

func (o origins) of(flag string, item int) string {
	if at := o[flag]; at != nil {
		return at(item)
	}
	return "--" + flag
}

// wrong is the error about a setting, or about an item of a list of them.
func (o origins) wrong(flag string, item int, err error) error {
	return fmt.Errorf("%s: %w", o.of(flag, item), err)
}

// findOrigins returns where the values of what was parsed stand; file may be nil.
func findOrigins(ctx *kong.Context, file *configFile) origins {
	o := make(origins)
	for _, flag := range ctx.Flags() {
		name := flag.Name
		if slices.ContainsFunc(ctx.Path, func(p *kong.Path) bool { return p.Flag != nil && p.Flag.Name == name && !p.Resolved }) {
			o[name] = func(int) string { return "--" + name }
		} else if i := slices.IndexFunc(flag.Envs, isSet); i >= 0 {
			o[name] = func(int) string { return flag.Envs[i] }
		} else if file != nil && file.used[name] != "" {
			o[name] = func(item int) string { return file.at(file.values[name].at(item)) + ": " + name }
		}
	}
	return o
}

// check judges every value that was set by a flag or a variable; those of the file were.
func (o origins) check(flags []*kong.Flag) error {
	var all []error
	for _, flag := range flags {
		if o[flag.Name] == nil {
			continue
		}
		for _, fault := range faults(flag.Target) {
			all = append(all, o.wrong(flag.Name, fault.item, fault.err))
		}
	}
	return errors.Join(all...)
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

// isSet reports whether a variable says something. An empty one is what container files make of one that nobody set, and dropEmpty has kong see it so.
func isSet(variable string) bool { return os.Getenv(variable) != "" }

func dropEmpty() {
	for _, v := range os.Environ() {
		if name, value, _ := strings.Cut(v, "="); strings.HasPrefix(name, "MILLPOND_") && value == "" {
			os.Unsetenv(name)
		}
	}
}

// choice is a setting with few values.
func choice(text string, of ...string) error {
	if slices.Contains(of, text) {
		return nil
	}
	return fmt.Errorf("%q is not one of %s", text, strings.Join(of, ", "))
}
