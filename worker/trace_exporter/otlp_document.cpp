#include "worker/trace_exporter/otlp_document.hpp"

#include <charconv>
#include <nlohmann/json.hpp>

#include "core/json_writer.hpp"
#include "core/text.hpp"
#include "core/version.hpp"
#include "tiers/prefetch/status.hpp"

namespace cenote::traces {

namespace {

/// Members of OTLP's enumerations, which are numbers in its JSON.
constexpr std::uint64_t kind_internal = 1;
constexpr std::uint64_t status_error = 2;
/// Of a span's flags: sampled; and that the parent is another process's, which is known.
constexpr std::uint64_t flags_of_remote_parent = 0x301;

class span_writer {
 public:
  explicit span_writer(std::string& out) : json_(out) {}

  void write(const resource_texts& resource, std::span<const exported_span> spans) {
    json_.begin_object();
    begin_list("resourceSpans");
    json_.begin_object();
    json_.name("resource");
    json_.begin_object();
    begin_list("attributes");
    for (const auto& [name, text] : resource) add_text(name, text);
    json_.end_list();
    json_.end_object();
    begin_list("scopeSpans");
    json_.begin_object();
    json_.name("scope");
    json_.begin_object();
    put_text("name", "cenote");
    put_text("version", product_version());
    json_.end_object();
    begin_list("spans");
    for (const exported_span& each : spans) write(each);
    for (int depth = 0; depth < 3; ++depth) {  // of lists in objects
      json_.end_list();
      json_.end_object();
    }
  }

 private:
  void write(const exported_span& span) {
    const local::trace_span& measured = span.measured;
    json_.begin_object();
    put_text("traceId", hex_text(measured.parent.trace));
    put_text("spanId", hex_text(span.id));
    put_text("parentSpanId", hex_text(measured.parent.span));
    json_.name("flags");
    json_.number(flags_of_remote_parent);
    put_text("name", measured.kind == local::span_kind::load ? "cenote.load" : "cenote.prefetch");
    json_.name("kind");
    json_.number(kind_internal);
    json_.name("startTimeUnixNano");
    json_.decimal_text(measured.begin_ns);
    json_.name("endTimeUnixNano");
    json_.decimal_text(measured.begin_ns + measured.length_ns);
    begin_list("attributes");
    add_number("cenote.session", span.origin->session);
    add_text("cenote.client", span.origin->client);
    if (!span.origin->instance_group.empty()) add_text("cenote.instance_group", span.origin->instance_group);
    if (measured.kind == local::span_kind::load) {
      add_load(measured);
    } else {
      add_prefetch(measured, span.origin->tiers);
    }
    json_.end_list();
    if (measured.end == local::span_end::refused || measured.end == local::span_end::worker_replaced)
      add_failure(measured);
    json_.end_object();
  }

  void add_load(const local::trace_span& measured) {
    add_number("cenote.blocks.asked", measured.blocks);
    add_number("cenote.blocks.loaded", measured.ready);
    add_number("cenote.bytes", measured.bytes);
  }

  void add_prefetch(const local::trace_span& measured, std::span<const std::string_view> tiers) {
    add_number("cenote.group", measured.group);
    add_number("cenote.blocks.asked", measured.blocks);
    add_number("cenote.blocks.ready", measured.ready);
    const bool has_outcome = measured.end == local::span_end::answered && measured.outcome.reason != 0;
    if (measured.end == local::span_end::cancelled)
      add_text("cenote.prefetch.ended", name_of(prefetch::reason::cancelled));
    if (!has_outcome) return;
    const std::size_t reason = measured.outcome.reason - std::size_t{1};
    if (reason < prefetch::reasons) add_text("cenote.prefetch.ended", name_of(static_cast<prefetch::reason>(reason)));
    add_number("cenote.prefetch.node_us", static_cast<std::uint64_t>(measured.outcome.duration.count()));
    add_number("cenote.blocks.resident", measured.outcome.resident);
    for (std::size_t edge = 0; edge < std::min(tiers.size(), measured.outcome.loaded.size()); ++edge)
      add_number(std::string("cenote.blocks.from.").append(tiers[edge]), measured.outcome.loaded[edge]);
  }

  void add_failure(const local::trace_span& measured) {
    json_.name("status");
    json_.begin_object();
    put_text("message",
             measured.end == local::span_end::refused ? to_string(measured.code) : "the node's worker was replaced");
    json_.name("code");
    json_.number(status_error);
    json_.end_object();
  }

  void begin_list(std::string_view name) {
    json_.name(name);
    json_.begin_list();
  }
  void put_text(std::string_view name, std::string_view text) {
    json_.name(name);
    json_.text(cut_text(text, most_text_bytes));
  }
  void begin_attribute(std::string_view name) {
    json_.begin_object();
    json_.name("key");
    json_.text(name);
    json_.name("value");
    json_.begin_object();
  }
  void add_text(std::string_view name, std::string_view text) {
    begin_attribute(name);
    put_text("stringValue", text);
    json_.end_object();
    json_.end_object();
  }
  void add_number(std::string_view name, std::uint64_t number) {
    begin_attribute(name);
    json_.name("intValue");
    json_.decimal_text(number);
    json_.end_object();
    json_.end_object();
  }

  json_writer json_;
};

}  // namespace

std::string otlp_document(const resource_texts& resource, std::span<const exported_span> spans) {
  constexpr std::size_t usual_bytes = 1'024;  // of a span
  std::string made;
  made.reserve((spans.size() + 1) * usual_bytes);
  span_writer(made).write(resource, spans);
  return made;
}

std::uint64_t rejected_spans(std::string_view answer) {
  using nlohmann::json;
  const json read = json::parse(answer, nullptr, false);
  if (!read.is_object()) return 0;
  const auto partial = read.find("partialSuccess");
  if (partial == read.end() || !partial->is_object()) return 0;
  const auto rejected = partial->find("rejectedSpans");
  if (rejected == partial->end()) return 0;
  if (rejected->is_number_unsigned()) return rejected->get<std::uint64_t>();
  if (!rejected->is_string()) return 0;
  const auto& text = rejected->get_ref<const std::string&>();
  std::uint64_t number = 0;
  (void)std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

}  // namespace cenote::traces
