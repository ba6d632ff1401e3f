package expression

func objectFunction(name string) function {
	switch name {
	case "keys":
		return function{1, 1, keys}
	case "values":
		return function{1, 1, values}
	case "toPairs":
		return function{1, 1, toPairs}
	case "fromPairs":
		return function{1, 1, fromPairs}
	case "get":
		return function{2, 2, func(c *call) (any, error) { return pick(c.args[0], c.args[1]) }}
	case "merge":
		return function{1, anyNumber, merge}
	case "type":
		return function{1, 1, func(c *call) (any, error) { return typeName(c.args[0]), nil }}
	default:
		return function{}
	}
}

// members calls see with every member, by name.
func (c *call) members(see func(name string, v any)) error {
	object, err := c.object(0)
	if err != nil {
		return err
	}
	if err := c.run.list(2 * len(object)); err != nil {
		return err
	}
	for _, name := range sortedKeys(object) {
		see(name, object[name])
	}
	return nil
}

func keys(c *call) (any, error) {
	list := []any{}
	err := c.members(func(name string, _ any) { list = append(list, name) })
	return list, err
}

// values are in the order of their names.
func values(c *call) (any, error) {
	list := []any{}
	err := c.members(func(_ string, v any) { list = append(list, v) })
	return list, err
}

func toPairs(c *call) (any, error) {
	list := []any{}
	err := c.members(func(name string, v any) { list = append(list, []any{name, v}) })
	return list, err
}

func fromPairs(c *call) (any, error) {
	list, err := c.list(0)
	if err != nil {
		return nil, err
	}
	object := map[string]any{}
	for _, v := range list {
		if err := c.run.member(); err != nil {
			return nil, err
		}
		pair, ok := v.([]any)
		if !ok || len(pair) != 2 {
			return nil, problem("fromPairs needs a list of pairs [name, value]")
		}
		name, ok := pair[0].(string)
		if !ok {
			return nil, problemf("the name of a member must be text, but it is %s", kind(pair[0]))
		}
		object[name] = pair[1]
	}
	return object, nil
}

// member accounts for one member of an object that is about to be made.
func (r *run) member() error {
	if err := r.step(1); err != nil {
		return err
	}
	return r.grow(memberBytes)
}

// merge puts objects together, deep, later ones over earlier ones. Null
// arguments and null members are ignored.
func merge(c *call) (any, error) {
	var merged any = map[string]any{}
	for i := range c.args {
		if c.args[i] == nil {
			continue
		}
		object, err := c.object(i)
		if err != nil {
			return nil, err
		}
		if merged, err = c.run.merge(merged, object); err != nil {
			return nil, err
		}
	}
	return merged, nil
}

// merge returns b over a without changing either.
func (r *run) merge(a, b any) (any, error) {
	over, ok := b.(map[string]any)
	if !ok {
		return b, nil
	}
	under, _ := a.(map[string]any)
	merged := make(map[string]any, len(under))
	for name, v := range under {
		if err := r.member(); err != nil {
			return nil, err
		}
		merged[name] = v
	}
	for name, v := range over {
		if err := r.member(); err != nil {
			return nil, err
		}
		if v == nil {
			continue
		}
		var err error
		if merged[name], err = r.merge(merged[name], v); err != nil {
			return nil, err
		}
	}
	return merged, nil
}
