#include "simulation/formats/format.hpp"

#include <algorithm>
#include <array>

#include "simulation/formats/bailian.hpp"
#include "simulation/formats/mooncake.hpp"
#include "simulation/formats/tair_log.hpp"
#include "simulation/formats/tair_schema.hpp"

namespace cenote::formats {

namespace {

constexpr std::uint64_t engine_block_tokens = 16;  // what vLLM has unless it is set

template <class Format>
std::unique_ptr<line_format> make() {
  return std::make_unique<Format>();
}

template <class Format>
constexpr format row(std::string_view name, std::uint64_t block_tokens, time_unit unit) {
  return {.name = name,
          .block_tokens = block_tokens,
          .unit = unit,
          .recognizes = &Format::recognizes,
          .open = &make<Format>};
}

constexpr std::array rows{
    row<mooncake>("mooncake", simulation::trace::tokens_per_block, time_unit::automatic),
    row<bailian>("bailian", engine_block_tokens, time_unit::seconds),
    row<tair_log>("tair-log", engine_block_tokens, time_unit::microseconds),
    row<tair_schema>("tair-schema", engine_block_tokens, time_unit::microseconds),
};

}  // namespace

std::unexpected<fault> bad(std::string text) {
  std::string kind = text;
  return std::unexpected(fault{.kind = std::move(kind), .text = std::move(text)});
}

std::unexpected<fault> bad(std::string_view kind, std::string text) {
  return std::unexpected(fault{.kind = std::string(kind), .text = std::move(text)});
}

std::span<const format> table() noexcept {
  return rows;
}

const format* find(std::string_view name) noexcept {
  const auto found = std::ranges::find(rows, name, &format::name);
  return found == rows.end() ? nullptr : &*found;
}

const format* recognize(const simdjson::dom::element& object) {
  const auto found = std::ranges::find_if(rows, [&](const format& each) { return each.recognizes(object); });
  return found == rows.end() ? nullptr : &*found;
}

}  // namespace cenote::formats
