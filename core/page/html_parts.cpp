#include "core/page/html_parts.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/page/svg_chart.hpp"

namespace cenote {

namespace {

constexpr std::string_view style = R"(
:root{color-scheme:light dark;--bg:#fff;--fg:#1c2024;--soft:#667079;--rule:#e3e7ea;--card:#f6f8f9;--bad:#b3261e;--good:#1f6f3a;
--c0:#1f6feb;--c1:#d1661a;--c2:#2a8a4a;--c3:#8b47c9;--c4:#1a1f24;--c5:#c02675;--c6:#0b7a8a;--c7:#8a6d00}
@media(prefers-color-scheme:dark){:root{--bg:#14181b;--fg:#e6e9eb;--soft:#96a1aa;--rule:#2c3338;--card:#1c2226;
--bad:#ff8a80;--good:#7fd89b;--c0:#6ea8ff;--c1:#f2a05c;--c2:#66cc8a;--c3:#c79bf2;--c4:#e6e9eb;--c5:#f27db8;--c6:#5cc8d8;--c7:#d9b84a}}
*{box-sizing:border-box}
body{margin:0;background:var(--bg);color:var(--fg);font:15px/1.5 system-ui,sans-serif}
main,#live{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,560px),1fr));column-gap:32px}
main{max-width:1760px;margin:0 auto;padding:28px 20px 60px}
main>*,#live>*{grid-column:1/-1;min-width:0}main>figure,#live>figure,#live>section{grid-column:auto}#live>section:has(th:nth-child(8)){grid-column:1/-1}#live td{white-space:nowrap}main>p{max-width:110ch}
h1{font-size:22px;margin:0}h2{font-size:17px;margin:34px 0 8px}p{margin:4px 0;color:var(--soft)}
p.bad{color:var(--bad)}p.good{color:var(--good)}code{font-size:13px;overflow-wrap:anywhere}
.cards{display:grid;grid-template-columns:repeat(auto-fit,minmax(150px,1fr));gap:10px;margin:20px 0}
.cards div{background:var(--card);border:1px solid var(--rule);border-radius:6px;padding:10px 12px}
.cards b{display:block;font-size:20px;font-weight:600}.cards span{color:var(--soft);font-size:13px}
figure{margin:26px 0}figcaption{font-weight:600;margin-bottom:2px}svg{display:block;width:100%;height:auto}
.legend{font-size:13px;color:var(--soft);display:flex;flex-wrap:wrap;gap:2px 16px;margin-bottom:6px}
.key{display:inline-block;width:20px;height:0;border-top:3px solid;margin-right:6px;vertical-align:middle}
.key.dashed{border-top-style:dashed}.key.dotted{border-top-style:dotted}.key.spot{width:11px;height:11px;border:0;border-radius:50%;background:currentColor}
.k0{color:var(--c0)}.k1{color:var(--c1)}.k2{color:var(--c2)}.k3{color:var(--c3)}.k4{color:var(--c4)}.k5{color:var(--c5)}.k6{color:var(--c6)}.k7{color:var(--c7)}
.line{fill:none;stroke-width:2;stroke-linejoin:round}.dashed{stroke-dasharray:6 4}.dotted{stroke-dasharray:2 3}
.line.s0{stroke:var(--c0)}.line.s1{stroke:var(--c1)}.line.s2{stroke:var(--c2)}.line.s3{stroke:var(--c3)}
.line.s4{stroke:var(--c4)}.line.s5{stroke:var(--c5)}.line.s6{stroke:var(--c6)}.line.s7{stroke:var(--c7)}
.dot.s0{fill:var(--c0)}.dot.s1{fill:var(--c1)}.dot.s2{fill:var(--c2)}.dot.s3{fill:var(--c3)}.dot.s4{fill:var(--c4)}
.dot.s5{fill:var(--c5)}.dot.s6{fill:var(--c6)}.dot.s7{fill:var(--c7)}
.hover{fill:transparent}.hover:hover{stroke:var(--fg)}
table{border-collapse:collapse;font-size:13px;margin:6px 0}th,td{padding:2px 10px 2px 0;text-align:right;font-variant-numeric:tabular-nums}
th:first-child,td:first-child{text-align:left}th{color:var(--soft);font-weight:500}details{font-size:13px;color:var(--soft)}
div.wide{overflow-x:auto}
.grid{stroke:var(--rule)}.axis{stroke:var(--soft)}.mark{stroke:var(--soft);stroke-dasharray:2 3}
.tick,.label{fill:var(--soft);font-size:12px}
button{font:inherit;color:inherit;background:var(--card);border:1px solid var(--soft);border-radius:6px;padding:4px 14px}
button:focus-visible,summary:focus-visible{outline:2px solid var(--c0);outline-offset:2px}
meter{width:100%;min-width:80px;height:12px}
pre{background:var(--card);border:1px solid var(--rule);border-radius:6px;padding:12px;overflow-x:auto;font-size:13px}
)";

bool is_digit(char character) {
  return character >= '0' && character <= '9';
}

}  // namespace

std::string html_of(const html_document& document) {
  std::string scripts;
  if (!document.data.empty())
    scripts = fmt::format("<script type=\"application/json\" id=\"data\">{}</script>\n", document.data);
  if (!document.script.empty()) scripts += fmt::format("<script>{}</script>\n", document.script);
  return fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" "
      "content=\"width=device-width\"><title>{0}</title><style>{1}</style></head><body><main>\n{2}{3}"
      "</main></body></html>\n",
      escape_html(document.title), style, document.body, scripts);
}

std::string html_table(std::span<const std::vector<std::string>> rows) {
  std::string out = "<div class=\"wide\"><table>";
  for (std::size_t i = 0; i < rows.size(); ++i) {
    out += "<tr>";
    for (const auto& each : rows[i]) {
      out += i == 0 ? fmt::format("<th scope=\"col\">{}</th>", escape_html(each))
                    : fmt::format("<td>{}</td>", escape_html(each));
    }
    out += "</tr>";
  }
  return out + "</table></div>\n";
}

std::string html_of(std::span<const page_card> cards) {
  std::string out = "<div class=\"cards\">";
  for (const page_card& each : cards) {
    out += fmt::format("<div><b>{}</b><span>{}</span></div>", escape_html(each.value), escape_html(each.name));
  }
  return out + "</div>\n";
}

std::string with_separators(std::string_view text) {
  constexpr std::size_t shortest = 5;
  constexpr std::size_t group = 3;
  std::string out(text);
  if (text.size() < shortest || !std::ranges::all_of(text, is_digit)) return out;
  for (std::size_t at = out.size() - group; at < text.size() && at > 0; at -= std::min(at, group))
    out.insert(at, 1, ',');
  return out;
}

}  // namespace cenote
