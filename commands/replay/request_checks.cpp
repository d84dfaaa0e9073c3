#include "commands/replay/request_checks.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <functional>
#include <utility>

#include "core/key_sample.hpp"

namespace cenote::replay {

using formats::line_request;
using formats::line_requests;
using formats::most_tokens;
using simulation::chain_access;

// ---------------------------------------------------------------------------------------------- complaints

bool complaint_list::add(std::string_view kind, std::uint64_t line, std::string text) {
  keep(kind, line, std::move(text), line_fate::left_out);
  return false;
}

void complaint_list::note(std::string_view kind, std::uint64_t line, std::string text) {
  keep(kind, line, std::move(text), line_fate::taken);
}

void complaint_list::keep(std::string_view kind, std::uint64_t line, std::string text, line_fate fate) {
  const auto same = std::ranges::find(all_, kind, &complaint::kind);
  if (same == all_.end()) {
    all_.push_back({.kind = std::string(kind), .line = line, .text = std::move(text), .fate = fate});
  } else {
    ++same->further;
  }
}

std::vector<std::string> complaint_list::texts(const std::string& path) const {
  std::vector<std::string> texts;
  texts.reserve(all_.size());
  for (const complaint& each : all_) texts.push_back(each.text_of(path));
  return texts;
}

std::optional<std::string> complaint_list::first_reason(const std::string& path) const {
  const auto first = std::ranges::find(all_, line_fate::left_out, &complaint::fate);
  return first == all_.end() ? std::nullopt : std::optional(first->text_of(path));
}

std::string complaint_list::complaint::text_of(const std::string& path) const {
  const std::string more = further == 0 ? "" : fmt::format(" ({} more like it)", further);
  return fmt::format("{}:{}: {}{}", path, line, text, more);
}

// ---------------------------------------------------------------------------------------------- requests

bool request_checks::passes(const line_request& request, const line_requests& read) {
  if (request.tokens > most_tokens) {
    return complaints_.add("tokens", request.line,
                           fmt::format("`input_length` is no number of tokens, 0 to {}", most_tokens));
  }
  if (!fits(request, read.block_tokens)) return false;
  const auto ids = std::span(read.ids).subspan(request.first, request.count);
  if (std::ranges::adjacent_find(ids, std::greater_equal()) == ids.end()) return true;  // so none comes twice
  const auto twice = find_twice(ids);
  if (!twice) return true;
  return complaints_.add("twice", request.line,
                         fmt::format("id {} comes twice, but a block of a prefix comes once in its request", *twice));
}

bool request_checks::fits(const line_request& request, std::uint64_t block_tokens) {
  const std::uint64_t fit = (request.tokens + block_tokens - 1) / block_tokens;
  const bool too_many = request.count > fit;
  const bool too_few = request.count < request.tokens / block_tokens;
  if (!too_many && !too_few) return true;
  std::string text = fmt::format(
      "{}{} ids for {} tokens: with a block for each {} tokens there are {}; --block-tokens gives another number",
      too_few ? "only " : "", request.count, request.tokens, block_tokens, fit);
  if (too_many) return complaints_.add("too many", request.line, std::move(text));
  complaints_.note("too few", request.line, std::move(text));
  return true;
}

std::optional<std::uint64_t> request_checks::find_twice(std::span<const std::uint64_t> ids) {
  const std::uint64_t request = ++looked_through_;
  if (ids.size() * 2 > places_.size()) places_.resize(std::bit_ceil(ids.size() * 2));
  const std::size_t mask = places_.size() - 1;
  for (const std::uint64_t id : ids) {
    std::size_t at = mixed_bits(id ^ salt_) & mask;
    for (; places_[at].request == request; at = (at + 1) & mask) {
      if (places_[at].id == id) return id;
    }
    places_[at] = {.id = id, .request = request};
  }
  return std::nullopt;
}

namespace {

/// Whether so many ids are those of all blocks, or of all full ones.
bool fits_blocks(const line_request& request, std::uint64_t block_tokens) {
  const std::uint64_t full = request.tokens / block_tokens;
  return request.count == full || (request.count == full + 1 && request.tokens % block_tokens != 0);
}

bool are_halves(const line_request& read, const line_request& write, std::span<const std::uint64_t> ids) {
  return read.access == chain_access::read && write.access == chain_access::write && read.instance == write.instance &&
         std::ranges::equal(ids.subspan(read.first, read.count), ids.subspan(write.first, write.count));
}

}  // namespace

std::optional<std::uint64_t> fitting_block_tokens(std::span<const line_request> sample, std::uint64_t usual) {
  constexpr std::uint64_t most = std::uint64_t{1} << 16;
  const auto share = [&](std::uint64_t size) {
    return std::ranges::count_if(sample, [&](const line_request& each) { return fits_blocks(each, size); });
  };
  const auto enough = static_cast<std::ptrdiff_t>((sample.size() * 9 + 9) / 10);
  if (sample.empty() || share(usual) >= enough) return usual;
  std::optional<std::uint64_t> fitting;
  for (std::uint64_t size = 1; size <= most; size *= 2) {
    if (share(size) < enough) continue;
    if (fitting) return std::nullopt;
    fitting = size;
  }
  return fitting;
}

void join_reads_and_writes(line_requests& read) {
  auto& requests = read.requests;
  std::size_t size = 0;
  for (const line_request& each : requests) {
    if (size > 0 && are_halves(requests[size - 1], each, read.ids)) {
      requests[size - 1].access = chain_access::both;
    } else {
      requests[size++] = each;
    }
  }
  requests.resize(size);
}

}  // namespace cenote::replay
