#include "cluster/write_offs.hpp"

#include <algorithm>

namespace cenote::cluster {

std::uint64_t write_offs::number_of(const std::string& name) const noexcept {
  const auto known = record_.nodes.find(name);
  return known == record_.nodes.end() ? 0 : known->second;
}

void write_offs::begin(const std::string& name, std::uint64_t now) {
  if (!has(name)) make_room();
  auto& number = record_.nodes[name];
  number = std::max(now, number + 1);
  ++changes_;
}

bool write_offs::learn(const std::string& name, std::uint64_t number) {
  if (number <= number_of(name) || is_closed(number)) return false;
  const auto is_older = [&](const auto& each) { return number < each.second; };
  if (!has(name) && record_.nodes.size() >= most_write_offs && std::ranges::all_of(record_.nodes, is_older)) {
    record_.is_incomplete = true;
    return false;
  }
  if (!has(name)) make_room();
  record_.nodes[name] = number;
  ++changes_;
  return true;
}

/// The oldest gives way.
void write_offs::make_room() {
  if (record_.nodes.size() < most_write_offs) return;
  record_.nodes.erase(std::ranges::min_element(record_.nodes, {}, &decltype(record_.nodes)::value_type::second));
  record_.is_incomplete = true;
}

void write_offs::close(const std::string& name, std::uint64_t number) {
  if (number_of(name) == number) record_.nodes.erase(name);
  close_elsewhere(number);
}

void write_offs::close_elsewhere(std::uint64_t number) {
  if (!is_closed(number)) record_.closed.push_back(number);
  if (record_.closed.size() > most_numbers) record_.closed.pop_front();
  ++changes_;
}

bool write_offs::is_closed(std::uint64_t number) const noexcept {
  return std::ranges::find(record_.closed, number) != record_.closed.end();
}

}  // namespace cenote::cluster
