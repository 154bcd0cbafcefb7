#include "report/page.hpp"

#include <algorithm>
#include <array>

#include "base/text.hpp"
#include "base/utf8.hpp"
#include "format/json_writer.hpp"
#include "report/page_file.hpp"

namespace emm::report {
namespace {

/// The character of a JSON escape ("\\u202e") in UTF-8. Empty if it is no escape, or half of a
/// surrogate pair.
std::string escaped_character(std::string_view escape) {
  if (!escape.starts_with("\\u") || escape.size() < 6) return {};
  const auto code = text::to_u64(text::format("0x{}", escape.substr(2, 4))).value_or(0xd800);
  const auto six = [&](int shift) { return static_cast<char>(0x80 | ((code >> shift) & 0x3f)); };
  if (code < 0x80) return std::string(1, static_cast<char>(code));
  if (code < 0x800) return {static_cast<char>(0xc0 | code >> 6), six(0)};
  if (code >= 0xd800 && code < 0xe000) return {};
  return {static_cast<char>(0xe0 | code >> 12), six(6), six(0)};
}

/// Appends JSON in a form that is safe in a script element: no "<" can end the element or begin a
/// comment. Characters that a browser obeys or hides, such as marks of direction, become their
/// names, so that a plugin's words cannot reorder the text beside them.
void append_safe(std::string& out, std::string_view json) {
  while (!json.empty()) {
    const char c = json.front();
    std::size_t length = 1;
    if (c == '<') {
      out += "\\u003c";
    } else if (c == '\\' || static_cast<unsigned char>(c) >= 0x7f) {
      const auto escape = escaped_character(json);
      const auto character = escape.empty() ? json : std::string_view(escape);
      length = !escape.empty() ? 6
               : c == '\\'     ? 2
                               : std::max<std::size_t>(text::utf8_length(json), 1);
      if (text::utf8_length(character) != 0 && text::is_hidden(character))
        out += "\\\\u{" + text::hex(text::code_point(character)).substr(2) + '}';
      else
        out += json.substr(0, length);
    } else if (c != '\n') {
      out.push_back(c);
    }
    json.remove_prefix(std::min(length, json.size()));
  }
}

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out.push_back(c);
    }
  }
  return out;
}

/// Returns the part of `text` before `mark`, and removes that part and the mark from `text`.
std::string_view take_to(std::string_view& text, std::string_view mark) {
  const auto at = text.find(mark);
  const auto taken = text.substr(0, at);
  text.remove_prefix(at == std::string_view::npos ? text.size() : at + mark.size());
  return taken;
}

}  // namespace

PagePart result_part(const format::JsonValue& value, std::string_view path) {
  PagePart part;
  format::JsonWriter json(part.json);
  std::string content;
  format::append_json(content, value);
  json.begin_object().member("path", path).key("content").raw(content).end_object();
  return part;
}

std::string page(const Origin& origin, const std::vector<PagePart>& traces,
                 const std::vector<PagePart>& results) {
  std::string about;
  format::JsonWriter json(about);
  json.begin_object().members(origin);
  json.key("traces").begin_array();
  for (const auto& part : traces) json.raw(part.json);
  json.end_array().key("results").begin_array();
  for (const auto& part : results) json.raw(part.json);
  json.end_array().end_object();

  std::string out;
  auto frame = page_file("page.html");
  out += take_to(frame, "{{title}}");
  out += escaped(text::printable(origin.title, std::string::npos));
  out += take_to(frame, "{{style}}");
  out += page_file("page.css");
  out += take_to(frame, "{{data}}");
  out += "<script type=\"application/json\" id=\"about\">";
  append_safe(out, about);
  out += "</script>\n";
  out += take_to(frame, "{{programs}}");
  auto dygraph = page_file("dygraph.js");
  out += "<script>\n";
  out += take_to(dygraph, "//# sourceMappingURL");  // a page on a disk has no source map
  out += "</script>\n<script>\n\"use strict\";\n";
  constexpr std::array<std::string_view, 8> kPrograms{
      "data.js", "series.js", "chart.js", "live.js", "gap.js", "map.js", "results.js", "main.js"};
  for (const auto name : kPrograms) out += page_file(name);
  out += "</script>\n";
  // The data come after the programs, which draw the first pictures while the browser still loads.
  const auto add_packed = [&](std::string_view kind, std::string_view packed) {
    out += "<script type=\"text/plain\" class=\"";
    out += kind;
    out += "\">";
    out += packed;
    out += "</script>\n";
  };
  for (const auto& trace : traces) add_packed("payload", trace.payload);
  for (const auto& trace : traces) add_packed("places", trace.places);
  out += frame;
  return out;
}

}  // namespace emm::report
