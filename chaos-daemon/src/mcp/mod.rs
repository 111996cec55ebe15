//! mcp (empty for now).
