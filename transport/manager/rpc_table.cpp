// Look-ups of the manager's calls by path.
#include "transport/manager/rpc_table.hpp"

#include <algorithm>

namespace cenote::manager {

namespace {

constexpr bool rows_stand_by_number() noexcept {
  for (std::size_t i = 0; i < rpc_rows.size(); ++i) {
    if (static_cast<std::size_t>(rpc_rows[i].call) != i) return false;
  }
  return rpc_rows.size() == static_cast<std::size_t>(rpc::clear_faults) + 1;
}
static_assert(rows_stand_by_number());

// Numbers of rows, in the order of the texts that are searched.
template <class Less>
consteval auto sorted_rows(Less less) {
  std::array<std::uint8_t, rpc_rows.size()> order{};
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<std::uint8_t>(i);
  std::ranges::sort(order, [&](std::uint8_t a, std::uint8_t b) { return less(rpc_rows[a], rpc_rows[b]); });
  return order;
}

constexpr auto rows_by_grpc_path =
    sorted_rows([](const rpc_row& a, const rpc_row& b) { return a.grpc_path < b.grpc_path; });
constexpr auto rows_by_json_path = sorted_rows([](const rpc_row& a, const rpc_row& b) {
  return a.face() != b.face() ? a.face() < b.face() : a.json_path < b.json_path;
});

}  // namespace

const rpc_row* find_grpc_path(std::string_view path) noexcept {
  const auto row = std::ranges::lower_bound(rows_by_grpc_path, path, {},
                                            [](std::uint8_t number) { return rpc_rows[number].grpc_path; });
  if (row == rows_by_grpc_path.end() || rpc_rows[*row].grpc_path != path) return nullptr;
  return &rpc_rows[*row];
}

const rpc_row* find_json_path(rpc_face face, std::string_view path) noexcept {
  const auto row = std::ranges::lower_bound(rows_by_json_path, std::pair{face, path}, {}, [](std::uint8_t number) {
    return std::pair{rpc_rows[number].face(), rpc_rows[number].json_path};
  });
  if (row == rows_by_json_path.end()) return nullptr;
  const rpc_row& candidate = rpc_rows[*row];
  return candidate.face() == face && candidate.json_path == path ? &candidate : nullptr;
}

}  // namespace cenote::manager
