#include "device/paged_layout.hpp"

#include <algorithm>
#include <array>
#include <string>
#include <tuple>
#include <utility>

#include "core/instance_spec.hpp"

namespace cenote {

namespace {

// Axes of a tensor, outermost first: l layer, k keys or values, p page, s slot (page and token in one), t token,
// h head, d item.
struct kind_facts {
  kv_layout kind;
  std::string_view name;
  std::string_view axes;
  std::size_t tensors_per_layer;  // 0: one for all layers
};

constexpr std::array<kind_facts, 15> kinds{{
    {kv_layout::kv_first, "kv_first", "kpthd", 1},
    {kv_layout::pages_first, "pages_first", "pkthd", 1},
    {kv_layout::heads_first, "heads_first", "pkhtd", 1},
    {kv_layout::kv_first_heads_first, "kv_first_heads_first", "kphtd", 1},
    {kv_layout::fused, "fused", "phtd", 1},
    {kv_layout::latent, "latent", "ptd", 1},
    {kv_layout::pool, "pool", "shd", 2},
    {kv_layout::latent_pool, "latent_pool", "shd", 1},
    {kv_layout::host_layer_first, "host_layer_first", "klshd", 0},
    {kv_layout::host_page_first, "host_page_first", "kslhd", 0},
    {kv_layout::host_page_first_direct, "host_page_first_direct", "kplthd", 0},
    {kv_layout::host_page_head, "host_page_head", "kphtld", 0},
    {kv_layout::latent_host_layer_first, "latent_host_layer_first", "lshd", 0},
    {kv_layout::latent_host_page_first, "latent_host_page_first", "slhd", 0},
    {kv_layout::latent_host_page_first_direct, "latent_host_page_first_direct", "plthd", 0},
}};

const kind_facts& facts_of(kv_layout kind) noexcept {
  return kinds[static_cast<std::size_t>(kind)];
}

std::string_view name_of(char axis) noexcept {
  switch (axis) {
    case 'l': return "layers";
    case 'k': return "keys and values";
    case 'p': return "pages";
    case 's': return "slots";
    case 't': return "tokens of a page";
    case 'h': return "heads";
    default: return "items of a head";
  }
}

std::uint64_t declared_size(char axis, const kv_shape& shape) noexcept {
  switch (axis) {
    case 'l': return shape.layers;
    case 'k': return 2;
    case 'p': return shape.pages;
    case 's': return shape.pages * shape.page_tokens;
    case 't': return shape.page_tokens;
    case 'h': return shape.heads;
    default: return shape.head_items;
  }
}

constexpr std::uint64_t most = std::uint64_t{1}
                               << 48;      // of whatever is counted: products stay in 64 bits where it matters
constexpr std::uint32_t widest_item = 64;  // bytes

/// An axis of one tensor; bytes from one to the next.
struct axis {
  char letter;
  std::uint64_t size;
  std::uint64_t stride;
};
using axes = std::vector<axis>;

std::unexpected<error> refuse(const kind_facts& facts, std::size_t tensor, const std::string& what) {
  return fail(error_code::invalid_argument,
              "tensor " + std::to_string(tensor) + ", declared " + std::string(facts.name) + ": " + what);
}

/// The axes as declared, if the tensor has them. An engine may keep more pages or slots than it declares.
result<axes> axes_of(const kind_facts& facts, const kv_shape& shape, const tensor_view& tensor, std::size_t number) {
  if (tensor.base == nullptr) return refuse(facts, number, "it has no address");
  if (tensor.sizes.size() != facts.axes.size() || tensor.strides.size() != facts.axes.size()) {
    return refuse(facts, number,
                  "it has " + std::to_string(tensor.sizes.size()) + " sizes and " +
                      std::to_string(tensor.strides.size()) + " strides, the layout " +
                      std::to_string(facts.axes.size()) + " axes");
  }
  axes made;
  for (std::size_t i = 0; i < facts.axes.size(); ++i) {
    const char letter = facts.axes[i];
    const std::uint64_t want = declared_size(letter, shape);
    const bool may_be_more = letter == 'p' || letter == 's';
    if (tensor.sizes[i] != want && !(may_be_more && tensor.sizes[i] > want)) {
      return refuse(facts, number,
                    "axis " + std::to_string(i) + " (" + std::string(name_of(letter)) + ") has " +
                        std::to_string(tensor.sizes[i]) + ", not " + std::to_string(want));
    }
    if (tensor.sizes[i] > most || tensor.strides[i] > most) return refuse(facts, number, "it has absurd strides");
    made.push_back({letter, tensor.sizes[i], tensor.strides[i] * shape.item_bytes});
  }
  return made;
}

/// Refuses axes that overlap, and heads whose items do not follow each other.
result<void> check_strides(const kind_facts& facts, const kv_shape& shape, axes given, std::size_t number) {
  if (given.back().size > 1 && given.back().stride != shape.item_bytes) {
    return refuse(facts, number,
                  "items of a head are " + std::to_string(given.back().stride) + " bytes apart, not " +
                      std::to_string(shape.item_bytes));
  }
  std::erase_if(given, [](const axis& each) { return each.size == 1; });
  std::ranges::stable_sort(given, {}, &axis::stride);
  std::uint64_t inside = shape.item_bytes;
  for (const axis& each : given) {
    if (each.stride < inside || each.stride / shape.item_bytes > most / each.size) {
      return refuse(facts, number,
                    std::string(name_of(each.letter)) + " are " + std::to_string(each.stride) +
                        " bytes apart; what lies within one takes " + std::to_string(inside));
    }
    inside = each.stride * each.size;
  }
  return {};
}

/// The pieces of one layer's keys or values: `inner` are the axes in a page, in the order that they have in a block.
void add_pieces(std::byte* base, std::uint64_t page_stride, const axes& inner, std::vector<strided_piece>& out) {
  std::vector<std::pair<std::uint64_t, std::uint64_t>> merged;  // count, stride
  for (const axis& each : inner) {
    if (each.size == 1) continue;
    if (!merged.empty() && merged.back().second == each.size * each.stride) {
      merged.back() = {merged.back().first * each.size, each.stride};
    } else {
      merged.emplace_back(each.size, each.stride);
    }
  }
  // The items are the last axis and lie back to back, so the last one left is a run, unless a head is one item.
  const axis& items = inner.back();
  std::uint64_t run_bytes = items.stride;
  if (!merged.empty() && merged.back().second == items.stride) {
    run_bytes = merged.back().first * merged.back().second;
    merged.pop_back();
  }
  strided_piece piece{base, page_stride, run_bytes, 1, 0};
  if (!merged.empty()) {
    std::tie(piece.runs, piece.run_stride) = merged.back();
    merged.pop_back();
  }
  std::vector<std::uint64_t> starts{0};
  for (const auto& [count, stride] : merged) {
    std::vector<std::uint64_t> finer;
    for (const std::uint64_t start : starts) {
      for (std::uint64_t i = 0; i < count; ++i) finer.push_back(start + i * stride);
    }
    starts = std::move(finer);
  }
  for (const std::uint64_t start : starts) {
    out.push_back(piece);
    out.back().base += start;
  }
}

/// Of one tensor: the bytes from a page to the next, and the axes within one.
std::pair<std::uint64_t, axes> page_of(const axes& given, const kv_shape& shape) {
  std::uint64_t page_stride = 0;
  axes inner;
  for (const axis& each : given) {
    if (each.letter == 'p') page_stride = each.stride;
    if (each.letter == 's') {
      page_stride = each.stride * shape.page_tokens;
      inner.push_back({'t', shape.page_tokens, each.stride});
    }
    if (each.letter == 't' || each.letter == 'h' || each.letter == 'd') inner.push_back(each);
  }
  if (inner.back().size == 1) inner.back().stride = shape.item_bytes;  // frameworks give such an axis any stride
  return {page_stride, inner};
}

/// Size and stride of an axis; of one that the tensor has not: 1 and 0.
std::pair<std::uint64_t, std::uint64_t> outer(const axes& given, char letter) noexcept {
  const auto found = std::ranges::find(given, letter, &axis::letter);
  return found == given.end() ? std::pair<std::uint64_t, std::uint64_t>{1, 0} : std::pair{found->size, found->stride};
}

result<void> check_shape(const kv_shape& shape) {
  if (shape.layers != 0 && shape.pages != 0 && shape.page_tokens != 0 && shape.heads != 0 && shape.head_items != 0 &&
      shape.item_bytes != 0 && shape.item_bytes <= widest_item && shape.pages <= most / shape.page_tokens) {
    return {};
  }
  return fail(error_code::invalid_argument,
              "a KV shape needs layers, pages, tokens, heads, items and 1 to 64 bytes an item, all above 0");
}

}  // namespace

std::string_view to_string(kv_layout kind) noexcept {
  return facts_of(kind).name;
}

paged_layout::paged_layout(std::vector<strided_piece> pieces, std::vector<std::size_t> layer_begins,
                           std::uint64_t pages)
    : pieces_(std::move(pieces)), offsets_{0}, layer_begins_(std::move(layer_begins)), pages_(pages) {
  offsets_.reserve(pieces_.size() + 1);
  for (const strided_piece& piece : pieces_) offsets_.push_back(offsets_.back() + piece.bytes());
}

result<paged_layout> paged_layout::of(kv_layout kind, const kv_shape& shape, std::span<const tensor_view> tensors) {
  if (auto good = check_shape(shape); !good) return std::unexpected(good.error());
  const kind_facts& facts = facts_of(kind);
  const std::size_t wanted = facts.tensors_per_layer == 0 ? 1 : facts.tensors_per_layer * shape.layers;
  if (tensors.size() != wanted) {
    return fail(error_code::invalid_argument, std::string(facts.name) + " of " + std::to_string(shape.layers) +
                                                  " layers is " + std::to_string(wanted) + " tensors; there are " +
                                                  std::to_string(tensors.size()));
  }
  std::vector<strided_piece> pieces;
  std::vector<std::size_t> layer_begins;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const auto given = axes_of(facts, shape, tensors[i], i);
    if (!given) return std::unexpected(given.error());
    if (auto good = check_strides(facts, shape, *given, i); !good) return std::unexpected(good.error());
    const auto [page_stride, inner] = page_of(*given, shape);
    const auto [layers, layer_stride] = outer(*given, 'l');
    const auto [halves, half_stride] = outer(*given, 'k');
    const bool begins_a_layer = facts.tensors_per_layer == 0 || i % facts.tensors_per_layer == 0;
    for (std::uint64_t layer = 0; layer < layers; ++layer) {
      if (begins_a_layer) layer_begins.push_back(pieces.size());
      for (std::uint64_t half = 0; half < halves; ++half) {
        add_pieces(tensors[i].base + layer * layer_stride + half * half_stride, page_stride, inner, pieces);
      }
    }
  }
  layer_begins.push_back(pieces.size());
  return checked(std::move(pieces), std::move(layer_begins), shape.pages);
}

result<paged_layout> paged_layout::of_pieces(std::vector<strided_piece> pieces, std::size_t layers,
                                             std::uint64_t pages) {
  if (layers == 0 || pieces.empty() || pieces.size() % layers != 0) {
    return fail(error_code::invalid_argument, std::to_string(pieces.size()) +
                                                  " pieces are no whole number for each of " + std::to_string(layers) +
                                                  " layers");
  }
  std::vector<std::size_t> layer_begins;
  for (std::size_t i = 0; i <= layers; ++i) layer_begins.push_back(i * (pieces.size() / layers));
  return checked(std::move(pieces), std::move(layer_begins), pages);
}

result<paged_layout> paged_layout::checked(std::vector<strided_piece> pieces, std::vector<std::size_t> layer_begins,
                                           std::uint64_t pages) {
  std::uint64_t total = 0;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const strided_piece& piece = pieces[i];
    if (piece.base == nullptr || piece.run_bytes == 0 || piece.runs == 0) {
      return fail(error_code::invalid_argument,
                  "piece " + std::to_string(i) + " has no base, no runs, or runs of 0 bytes");
    }
    const bool too_long = piece.run_bytes > max_block_bytes || piece.runs > max_block_bytes / piece.run_bytes;
    if (!too_long) total += piece.bytes();
    if (too_long || total > max_block_bytes) return fail(error_code::limit_exceeded, "a page has more than 1 GiB");
  }
  return paged_layout(std::move(pieces), std::move(layer_begins), pages);
}

std::span<const strided_piece> paged_layout::pieces(layer_range layers) const noexcept {
  const std::size_t first = layer_begins_[layers.first];
  return std::span(pieces_).subspan(first, layer_begins_[layers.first + layers.count] - first);
}

std::span<const std::uint64_t> paged_layout::offsets(layer_range layers) const noexcept {
  const std::size_t first = layer_begins_[layers.first];
  return std::span(offsets_).subspan(first, layer_begins_[layers.first + layers.count] - first + 1);
}

result<void> paged_layout::check(const move_list& moves, layer_range layers) const {
  const std::size_t all = layer_begins_.size() - 1;
  if (layers.first > all || layers.count > all - layers.first) {
    return fail(error_code::invalid_argument, "layers " + std::to_string(layers.first) + " to " +
                                                  std::to_string(layers.first + layers.count) + " of " +
                                                  std::to_string(all));
  }
  if (moves.pages.size() != moves.blocks.size()) {
    return fail(error_code::invalid_argument,
                std::to_string(moves.pages.size()) + " pages, but " + std::to_string(moves.blocks.size()) + " blocks");
  }
  const auto beyond = std::ranges::find_if(moves.pages, [&](std::uint64_t page) { return page >= pages_; });
  if (beyond != moves.pages.end()) {
    return fail(error_code::invalid_argument,
                "there is no page " + std::to_string(*beyond) + " of " + std::to_string(pages_));
  }
  if (std::ranges::find(moves.blocks, nullptr) != moves.blocks.end()) {
    return fail(error_code::invalid_argument, "a block is a null pointer");
  }
  return {};
}

}  // namespace cenote
