// An engine's KV tensors of any shape with any bytes in them, and what a block must hold: byte by byte from the
// indices of its axes, without strided pieces.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "device/paged_layout.hpp"

namespace cenote::testing {

using random_engine = std::mt19937_64;

inline std::uint64_t any(random_engine& random, std::uint64_t least, std::uint64_t most) {
  return std::uniform_int_distribution(least, most)(random);
}

inline std::vector<std::byte> noise(random_engine& random, std::size_t size) {
  std::vector<std::byte> made(size);
  std::uint64_t word = random();
  for (std::byte& each : made)
    each = static_cast<std::byte>((word = word * 6364136223846793005U + 1442695040888963407U) >> 56);
  return made;
}

class engine_tensors {
 public:
  /// Axes as in kv_layout's comments: k l p s t h d. `loose`: axes in any order in memory, with gaps.
  engine_tensors(kv_layout layout, kv_shape given, bool loose, random_engine& random) : kind(layout), shape(given) {
    axes = shape_of(kind);
    const bool one = axes.find('l') != std::string::npos;
    const std::size_t count = one ? 1 : shape.layers * (kind == kv_layout::pool ? 2 : 1);
    for (std::size_t i = 0; i < count; ++i) add(loose, random);
  }

  static std::string shape_of(kv_layout kind) {
    const std::map<kv_layout, std::string> shapes{
        {kv_layout::kv_first, "kpthd"},
        {kv_layout::pages_first, "pkthd"},
        {kv_layout::heads_first, "pkhtd"},
        {kv_layout::kv_first_heads_first, "kphtd"},
        {kv_layout::fused, "phtd"},
        {kv_layout::latent, "ptd"},
        {kv_layout::pool, "shd"},
        {kv_layout::latent_pool, "shd"},
        {kv_layout::host_layer_first, "klshd"},
        {kv_layout::host_page_first, "kslhd"},
        {kv_layout::host_page_first_direct, "kplthd"},
        {kv_layout::host_page_head, "kphtld"},
        {kv_layout::latent_host_layer_first, "lshd"},
        {kv_layout::latent_host_page_first, "slhd"},
        {kv_layout::latent_host_page_first_direct, "plthd"},
    };
    return shapes.at(kind);
  }

  [[nodiscard]] std::vector<tensor_view> views() {
    std::vector<tensor_view> made;
    for (std::size_t i = 0; i < memory.size(); ++i) {
      made.push_back({memory[i].data() + skew, {}, strides[i]});
      for (const char axis : axes) made.back().sizes.push_back(size(axis));
    }
    return made;
  }

  [[nodiscard]] std::uint64_t halves() const {
    return kind == kv_layout::pool || axes.find('k') != std::string::npos ? 2 : 1;
  }
  [[nodiscard]] std::uint64_t layer_bytes() const {
    return halves() * shape.page_tokens * shape.heads * shape.head_items * shape.item_bytes;
  }
  [[nodiscard]] std::uint64_t block_bytes() const { return layer_bytes() * shape.layers; }

  /// Calls visit(byte of a tensor, offset in the block) for each byte of a page's layers.
  template <class Visit>
  void each_byte(std::uint64_t page, layer_range layers, const Visit& visit) {
    const bool heads_before_tokens = axes.find('h') < axes.find('t') && axes.find('t') != std::string::npos;
    std::uint64_t offset = layers.first * layer_bytes();
    for (std::uint64_t layer = layers.first; layer < layers.first + layers.count; ++layer) {
      for (std::uint64_t half = 0; half < halves(); ++half) {
        const std::uint64_t rows = std::uint64_t{shape.page_tokens} * shape.heads;
        for (std::uint64_t row = 0; row < rows; ++row) {
          const std::uint64_t token = heads_before_tokens ? row % shape.page_tokens : row / shape.heads;
          const std::uint64_t head = heads_before_tokens ? row / shape.page_tokens : row % shape.heads;
          for (std::uint64_t item = 0; item < shape.head_items; ++item) {
            std::byte* first = place(layer, half, page, token, head, item);
            for (std::uint64_t i = 0; i < shape.item_bytes; ++i) visit(first[i], offset++);
          }
        }
      }
    }
  }

  kv_layout kind;
  kv_shape shape;
  std::string axes;
  std::size_t skew = 0;
  std::vector<std::vector<std::byte>> memory;
  std::vector<std::vector<std::uint64_t>> strides;

 private:
  [[nodiscard]] std::uint64_t size(char axis) const {
    const std::map<char, std::uint64_t> sizes{{'k', 2},
                                              {'l', shape.layers},
                                              {'p', shape.pages},
                                              {'s', shape.pages * shape.page_tokens},
                                              {'t', shape.page_tokens},
                                              {'h', shape.heads},
                                              {'d', shape.head_items}};
    return sizes.at(axis);
  }

  void add(bool loose, random_engine& random) {
    std::vector<std::size_t> order(axes.size());  // from the innermost axis on
    std::iota(order.rbegin(), order.rend(), std::size_t{0});
    if (loose) std::shuffle(order.begin() + 1, order.end(), random);
    std::vector<std::uint64_t> made(axes.size());
    std::uint64_t inside = 1;
    for (const std::size_t axis : order) {
      if (loose && axis != axes.size() - 1) inside += any(random, 0, 3);
      made[axis] = inside;
      inside *= size(axes[axis]);
    }
    if (memory.empty()) skew = loose ? any(random, 0, 16) : 0;
    memory.push_back(noise(random, skew + inside * shape.item_bytes));
    strides.push_back(std::move(made));
  }

  [[nodiscard]] std::byte* place(std::uint64_t layer, std::uint64_t half, std::uint64_t page, std::uint64_t token,
                                 std::uint64_t head, std::uint64_t item) {
    std::size_t tensor = 0;
    if (axes.find('l') == std::string::npos) tensor = kind == kv_layout::pool ? layer * 2 + half : layer;
    const std::map<char, std::uint64_t> index{
        {'k', half},  {'l', layer}, {'p', page}, {'s', page * shape.page_tokens + token},
        {'t', token}, {'h', head},  {'d', item}};
    std::uint64_t items = 0;
    for (std::size_t i = 0; i < axes.size(); ++i) items += index.at(axes[i]) * strides[tensor][i];
    return memory[tensor].data() + skew + items * shape.item_bytes;
  }
};

inline constexpr int kv_layouts = 15;

/// Any layout and shape, small enough that thousands are tried in a second.
inline engine_tensors any_engine(random_engine& random) {
  const auto kind = static_cast<kv_layout>(any(random, 0, kv_layouts - 1));
  const bool no_heads = to_string(kind).starts_with("latent");
  const kv_shape shape{.layers = static_cast<std::uint32_t>(any(random, 1, 3)),
                       .pages = any(random, 1, 4),
                       .page_tokens = static_cast<std::uint32_t>(any(random, 1, 5)),
                       .heads = no_heads ? 1 : static_cast<std::uint32_t>(any(random, 1, 3)),
                       .head_items = static_cast<std::uint32_t>(any(random, 1, 9)),
                       .item_bytes = 1U << any(random, 0, 2)};
  return {kind, shape, any(random, 0, 1) == 1, random};
}

}  // namespace cenote::testing
