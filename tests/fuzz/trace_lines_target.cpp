// Lines of recorded requests in each format: whatever they hold, a reader gives a fault or sound requests.
#include <simdjson.h>

#include <array>
#include <string>
#include <string_view>

#include "simulation/formats/format.hpp"
#include "simulation/formats/members.hpp"
#include "tests/fuzz/target.hpp"

namespace {

using namespace cenote::formats;
using cenote::fuzz::bytes_view;

constexpr std::size_t most_lines = 64;

void check(const line_requests& read, std::size_t first) {
  for (std::size_t i = first; i < read.requests.size(); ++i) {
    const line_request& each = read.requests[i];
    if (each.first > read.ids.size() || each.count > read.ids.size() - each.first) std::abort();
    if (!(each.time >= 0) || each.time > 2e19) std::abort();
  }
}

template <std::size_t Place>
void read_lines(bytes_view input) {
  const auto reader = table()[Place].open();
  line_requests read;
  read.block_tokens = table()[Place].block_tokens;
  simdjson::dom::parser parser;
  std::string_view text(reinterpret_cast<const char*>(input.data()), input.size());
  for (std::size_t number = 1; !text.empty() && number <= most_lines; ++number) {
    const auto line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    simdjson::dom::element object;
    const std::string copy(line);  // the parser wants room behind it
    if (parser.parse(copy).get(object) != simdjson::SUCCESS || !object.is_object()) continue;
    static_cast<void>(recognize(object));
    const std::size_t requests = read.requests.size();
    const std::size_t ids = read.ids.size();
    if (take_block_tokens(object, read) && reader->take(object, number, read)) {
      check(read, requests);
      continue;
    }
    read.requests.resize(requests);
    read.ids.resize(ids);
  }
  const std::size_t requests = read.requests.size();
  reader->end(read);
  check(read, requests);
}

constexpr std::array<cenote::fuzz::codec, 4> codecs{read_lines<0>, read_lines<1>, read_lines<2>, read_lines<3>};

void seed(std::size_t place, std::string_view text) {
  cenote::fuzz::write_seed(place, std::as_bytes(std::span(text)));
}

void write_seeds() {
  seed(0, R"({"timestamp": 1, "input_length": 1024, "hash_ids": [1, -2]}
{"session_id": "s", "delay": 1.5, "input_tokens": "512", "block_hashes": ["0a"], "block_size": 512}
{"turns": [{"timestamp_ns": "7", "isl": 5.0, "block_ids": []}]})");
  seed(1, R"({"chat_id": 1, "parent_chat_id": -1, "timestamp": 0.5, "input_length": 20, "hash_ids": [5, 6]})");
  seed(2, R"({"type": "StartWriteCache", "source": "a", "trigger_time_us": 5, "write_session_id": "x", "keys": [1, -2]}
{"type": "FinishWriteCache", "source": "a", "trigger_time_us": 6, "write_session_id": "x", "success_block": [true, false]}
{"type": "GetCacheLocation", "source": "b", "trigger_time_us": 7, "keys": [1], "query_type": "prefix_match"}
{"type": "StartWriteCache", "source": "a", "trigger_time_us": 8, "write_session_id": "y", "keys": [3]})");
  seed(3, R"({"instance_id": "a", "timestamp_us": 1, "keys": [1], "total_keys": [1, 2], "input_len": 40})");
}

}  // namespace

cenote::fuzz::target cenote::fuzz::make_target() {
  if (table().size() != codecs.size()) std::abort();  // a new format gets a line and a seed here
  return {.codecs = ::codecs, .write_seeds = ::write_seeds};
}
