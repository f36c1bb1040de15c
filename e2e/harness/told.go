package harness

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// Told is what a program's API says of its sessions, for another version of the program to say too.
type Told struct {
	Sessions []ToldSession `json:"sessions"` // newest first
}

// ToldSession is what the API says of one session.
type ToldSession struct {
	Row          json.RawMessage   `json:"row"`     // in the list
	Session      json.RawMessage   `json:"session"` // by itself
	Certificates json.RawMessage   `json:"certificates"`
	Messages     json.RawMessage   `json:"messages"`
	Bodies       map[string]Upload `json:"bodies"` // by side: as they are downloaded
}

// Tell asks the API for everything. There are at most 500 sessions.
func (p *Program) Tell() (Told, error) {
	var told Told
	var list struct{ Sessions []json.RawMessage }
	if err := p.ask("/api/sessions?limit=500", &list); err != nil {
		return told, err
	}
	for _, row := range list.Sessions {
		var known Summary
		if err := json.Unmarshal(row, &known); err != nil {
			return told, err
		}
		s := ToldSession{Row: row, Bodies: map[string]Upload{}}
		at := fmt.Sprintf("/api/sessions/%d", known.ID)
		var session struct {
			Messages json.RawMessage `json:"messages"`
		}
		for path, into := range map[string]*json.RawMessage{at: &s.Session, at + "/certificates": &s.Certificates} {
			if err := p.ask(path, into); err != nil {
				return told, err
			}
		}
		if err := json.Unmarshal(s.Session, &session); err != nil {
			return told, err
		}
		if session.Messages != nil {
			if err := p.ask(at+"/messages?limit=500", &s.Messages); err != nil {
				return told, err
			}
		}
		for _, side := range []string{"request", "response"} {
			body, err := p.open(BodyURL(known.ID, side))
			if err != nil {
				return told, err
			}
			var got Upload
			got.SHA256, got.Size, err = Digest(body)
			body.Close()
			if err != nil {
				return told, fmt.Errorf("read %s of session %d: %w", side, known.ID, err)
			}
			s.Bodies[side] = got
		}
		told.Sessions = append(told.Sessions, s)
	}
	return told, nil
}

// Do sends a request with a JSON body to the API, and reads the answer into answer where that is not nil.
func (p *Program) Do(method, path, body string, answer any) error {
	req, err := http.NewRequest(method, p.Dashboard+path, strings.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+p.Token)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept-Encoding", "identity")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode/100 != 2 {
		err = fmt.Errorf("%s: %s", res.Status, text)
	}
	if err == nil && answer != nil {
		err = json.Unmarshal(text, answer)
	}
	if err != nil {
		return fmt.Errorf("%s %s: %w", method, path, err)
	}
	return nil
}

func (p *Program) ask(path string, into any) error { return p.Do(http.MethodGet, path, "", into) }

func (p *Program) open(path string) (io.ReadCloser, error) {
	req, err := http.NewRequest(http.MethodGet, p.Dashboard+path, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+p.Token)
	req.Header.Set("Accept-Encoding", "identity")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	if res.StatusCode != http.StatusOK {
		res.Body.Close()
		return nil, fmt.Errorf("get %s: %s", path, res.Status)
	}
	return res.Body, nil
}
