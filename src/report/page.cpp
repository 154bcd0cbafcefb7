#include "report/page.hpp"

#include <array>

#include "format/json_writer.hpp"

namespace emm::report {
namespace {

/// JSON as a script element may hold it: no "<" can end the element or begin a comment.
void append_safe(std::string& out, std::string_view json) {
  for (const char c : json) {
    if (c == '<') {
      out += "\\u003c";
    } else if (c != '\n') {
      out.push_back(c);
    }
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

/// The part of `text` before `mark`, which it and the mark then lack.
std::string_view take_to(std::string_view& text, std::string_view mark) {
  const auto at = text.find(mark);
  const auto taken = text.substr(0, at);
  text.remove_prefix(at == std::string_view::npos ? text.size() : at + mark.size());
  return taken;
}

}  // namespace

Part result_part(const format::JsonValue& value, std::string_view path) {
  Part part;
  format::JsonWriter json(part.json);
  std::string content;
  format::append_json(content, value);
  json.begin_object().member("path", path).key("content").raw(content).end_object();
  return part;
}

std::string page(const Origin& origin, const std::vector<Part>& traces,
                 const std::vector<Part>& results) {
  std::string about;
  format::JsonWriter json(about);
  json.begin_object().member("title", origin.title).member("command", origin.command);
  json.member("version", origin.version).member("machine", origin.machine);
  json.member("time", origin.time);
  json.key("traces").begin_array();
  for (const auto& part : traces) json.raw(part.json);
  json.end_array().key("results").begin_array();
  for (const auto& part : results) json.raw(part.json);
  json.end_array().end_object();

  std::string out;
  auto frame = page_file("page.html");
  out += take_to(frame, "{{title}}");
  out += escaped(origin.title);
  out += take_to(frame, "{{style}}");
  out += page_file("page.css");
  out += take_to(frame, "{{data}}");
  out += "<script type=\"application/json\" id=\"about\">";
  append_safe(out, about);
  out += "</script>\n";
  out += take_to(frame, "{{programs}}");
  auto dygraph = page_file("dygraph.js");
  out += "<script>\n";
  out += take_to(dygraph, "//# sourceMappingURL");  // which a page from a disk does not have
  out += "</script>\n<script>\n\"use strict\";\n";
  constexpr std::array<std::string_view, 7> kPrograms{
      "data.js", "series.js", "chart.js", "live.js", "map.js", "results.js", "main.js"};
  for (const auto name : kPrograms) out += page_file(name);
  out += "</script>\n";
  // Behind the programs, which show the first pictures while a browser still reads these.
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
