#include "commands/trace/recorded_requests.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <string_view>
#include <utility>

#include "commands/common.hpp"
#include "core/key_sample.hpp"
#include "simulation/formats/format.hpp"

namespace cenote::traces {

namespace {

using nlohmann::json;
using simulation::trace;

constexpr std::size_t digits_of_id = 16;
constexpr std::uint64_t ns_of_ms = 1'000'000;

/// False: these are no identities.
bool read_ids(const json& text, std::vector<std::uint64_t>& ids) {
  ids.clear();
  if (!text.is_string()) return false;
  const std::string_view digits = text.get_ref<const std::string&>();
  if (digits.empty() || digits.size() % digits_of_id != 0) return false;
  for (std::size_t place = 0; place < digits.size(); place += digits_of_id) {
    const char* first = digits.data() + place;
    std::uint64_t id = 0;
    const auto end = std::from_chars(first, first + digits_of_id, id, 16);
    if (end.ec != std::errc() || end.ptr != first + digits_of_id) return false;
    ids.push_back(id);
  }
  return true;
}

bool has_one_twice(std::vector<std::uint64_t> ids) {
  std::ranges::sort(ids);
  return std::ranges::adjacent_find(ids) != ids.end();
}

}  // namespace

result<void> recorded_requests::add(const json& answer, std::uint64_t start_ms) {
  const json& requests = member(answer, "requests");
  if (!requests.is_array()) return fail(error_code::malformed, "the node's answer has no `requests`");
  const std::uint64_t started = count_of(answer, "node_started_ns");
  if (std::exchange(node_started_ns_, started) != started) instances_.clear();
  for (const json& each : requests) {
    if (auto ok = add_request(each, start_ms); !ok) return ok;
  }
  return {};
}

result<void> recorded_requests::add_request(const json& request, std::uint64_t start_ms) {
  if (!read_ids(member(request, "ids"), ids_)) return fail(error_code::malformed, "a request has no `ids`");
  const std::uint64_t instance = count_of(request, "instance");
  if (!has_size(count_of(request, "block_tokens"))) return {};
  if (has_one_twice(ids_)) {
    ++left_out_["with a block twice"];
    return {};
  }
  const std::uint64_t time_ms = start_ms + count_of(request, "time_ns") / ns_of_ms;
  if (!is_begun_) {
    requests_ = trace(block_tokens_);
    first_ms_ = time_ms;
    is_begun_ = true;
  }
  const std::uint32_t number = number_of(instance);
  if (number != 0) {  // instances may use the same keys, and share no block
    for (std::uint64_t& id : ids_) id = mixed_bits(id + mixed_bits(number));
  }
  requests_.add({.time_ms = time_ms - std::min(time_ms, first_ms_),
                 .tokens = ids_.size() * block_tokens_,
                 .count = ids_.size(),
                 .access = simulation::chain_access::both,
                 .instance = number,
                 .session = 0},
                ids_);
  const json& cut = member(request, "cut");
  if (cut.is_boolean() && cut.get<bool>()) ++cut_;
  return {};
}

/// Whether the blocks of a request are of the trace's size.
bool recorded_requests::has_size(std::uint64_t block_tokens) {
  if (block_tokens == 0) block_tokens = given_tokens_;
  if (block_tokens == 0) {
    ++left_out_["of instances that name no tokens of a block (--block-tokens names them)"];
    return false;
  }
  if (block_tokens > formats::most_block_tokens) {
    ++left_out_[fmt::format("with blocks of more than {} tokens", formats::most_block_tokens)];
    return false;
  }
  if (block_tokens_ == 0) block_tokens_ = block_tokens;
  if (block_tokens == block_tokens_) return true;
  ++left_out_[fmt::format("with blocks of {} tokens and not {} (--block-tokens {} records these)", block_tokens,
                          block_tokens_, block_tokens)];
  return false;
}

std::uint32_t recorded_requests::number_of(std::uint64_t instance) {
  const auto [place, is_new] = instances_.try_emplace(instance, numbered_);
  if (is_new) ++numbered_;
  return place->second;
}

std::uint64_t recorded_requests::bytes() const noexcept {
  constexpr std::uint64_t table_places = 4;  // of a block: up to four, of 4 bytes each
  return requests_.requests().size() * sizeof(trace::entry) + requests_.stream().size() * sizeof(std::uint32_t) +
         requests_.distinct() * (sizeof(std::uint64_t) + table_places * sizeof(std::uint32_t));
}

}  // namespace cenote::traces
