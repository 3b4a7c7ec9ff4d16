package fold

// claudeEvent is a line, each of its members as JSON text.
type claudeEvent struct {
	typ, subtype, uuid, session, parent                           []byte
	message, event, request, response, requestID                  []byte
	isReplay, isSynthetic, toolUseResult, toolResultMeta          []byte
	state, command, status, patch, taskID, toolUseID, background  []byte
	taskType, summary, description, agentID                       []byte
	isError, terminal, cost, usage, models, result, errors        []byte
	origin, apiStatus, model, mode, attempt, maxRetries, errorStr []byte
	errorStatus, content, userUUIDs                               []byte
}

// read reads the members of a line. It reports false if the line is no JSON object.
func (e *claudeEvent) read(data []byte) bool {
	return each(data, func(key, v []byte) {
		switch string(key) {
		case "type":
			e.typ = v
		case "subtype":
			e.subtype = v
		case "uuid":
			e.uuid = v
		case "session_id":
			e.session = v
		case "parent_tool_use_id":
			e.parent = v
		case "message":
			e.message = v
		case "event":
			e.event = v
		case "request":
			e.request = v
		case "response":
			e.response = v
		case "request_id":
			e.requestID = v
		case "isReplay":
			e.isReplay = v
		case "isSynthetic":
			e.isSynthetic = v
		case "tool_use_result":
			e.toolUseResult = v
		case "tool_result_meta":
			e.toolResultMeta = v
		case "state":
			e.state = v
		case "command_uuid":
			e.command = v
		case "status":
			e.status = v
		case "patch":
			e.patch = v
		case "task_id":
			e.taskID = v
		case "tool_use_id":
			e.toolUseID = v
		case "is_backgrounded":
			e.background = v
		case "task_type":
			e.taskType = v
		case "summary":
			e.summary = v
		case "description":
			e.description = v
		case "agent_id":
			e.agentID = v
		case "is_error":
			e.isError = v
		case "terminal_reason":
			e.terminal = v
		case "total_cost_usd":
			e.cost = v
		case "usage":
			e.usage = v
		case "modelUsage":
			e.models = v
		case "result":
			e.result = v
		case "errors":
			e.errors = v
		case "origin":
			e.origin = v
		case "api_error_status":
			e.apiStatus = v
		case "model":
			e.model = v
		case "permissionMode":
			e.mode = v
		case "attempt":
			e.attempt = v
		case "max_retries":
			e.maxRetries = v
		case "error":
			e.errorStr = v
		case "error_status":
			e.errorStatus = v
		case "content":
			e.content = v
		case "user_message_uuids":
			e.userUUIDs = v
		}
	})
}

func (c *claude) typeOf(data []byte) string {
	var e claudeEvent
	e.read(data) // what comes before an error counts: the line may be cut
	sub := e.subtype
	switch str(e.typ) {
	case "stream_event":
		sub = member(e.event, "type")
	case "control_request":
		sub = member(e.request, "subtype")
	}
	return clip(typeName(str(e.typ), str(sub)), 256)
}

func typeName(typ, sub string) string {
	if sub == "" {
		return typ
	}
	return typ + "/" + sub
}
