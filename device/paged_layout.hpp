// Where an engine keeps the KV of its pages, layer by layer, and how that lies in a block of the cache.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "core/error.hpp"
#include "device/strided_piece.hpp"

namespace cenote {

/// The shapes of KV tensors that engines have. P pages of T tokens, S = P · T slots, H heads of D items, L layers;
/// 2: keys, then values. The first six are one tensor a layer.
enum class kv_layout : std::uint8_t {
  kv_first,                 ///< [2][P][T][H][D]     vLLM: FlashAttention
  pages_first,              ///< [P][2][T][H][D]     vLLM: FlashInfer, Triton
  heads_first,              ///< [P][2][H][T][D]     vLLM with heads before tokens
  kv_first_heads_first,     ///< [2][P][H][T][D]
  fused,                    ///< [P][H][T][D]        keys and values in one row of D items: vLLM on CPU
  latent,                   ///< [P][T][D]           MLA
  pool,                     ///< [S][H][D]           SGLang: a tensor for keys and one for values a layer, in this order
  latent_pool,              ///< [S][1][D]           SGLang, MLA: a tensor a layer
  host_layer_first,         ///< [2][L][S][H][D]     SGLang's host pools: one tensor
  host_page_first,          ///< [2][S][L][H][D]
  host_page_first_direct,   ///< [2][P][L][T][H][D]
  host_page_head,           ///< [2][P][H][T][L][D]
  latent_host_layer_first,  ///< [L][S][1][D]
  latent_host_page_first,   ///< [S][L][1][D]
  latent_host_page_first_direct,  ///< [P][L][T][1][D]
};

/// The name as in the enum, for messages.
[[nodiscard]] std::string_view to_string(kv_layout kind) noexcept;

/// What an engine says of its KV. All above 0.
struct kv_shape {
  std::uint32_t layers = 0;
  std::uint64_t pages = 0;
  std::uint32_t page_tokens = 0;
  std::uint32_t heads = 1;       ///< of this rank; 1 where there are none (MLA)
  std::uint32_t head_items = 0;  ///< D above
  std::uint32_t item_bytes = 0;
};

/// A tensor as frameworks describe it. Sizes and strides from the outermost axis on, strides in items.
struct tensor_view {
  std::byte* base = nullptr;
  std::vector<std::uint64_t> sizes;
  std::vector<std::uint64_t> strides;
};

/// Layers first … first + count - 1.
struct layer_range {
  std::size_t first = 0;
  std::size_t count = 0;
};

/// Which page of the engine goes with which block. `blocks` point to where the block (or one's own part of it) begins,
/// also when only some layers are moved. The arrays are read during the call only.
struct move_list {
  std::span<const std::uint64_t> pages;
  std::span<std::byte* const> blocks;
};

/// Where the pages are. In a block lie, back to back: the layers in order; of a layer keys, then values; in these the
/// other axes in the order of the shape. Immutable; copies share nothing. The tensors must outlive its use.
///
///     block │ layer 0: K of all tokens │ V │ layer 1: K │ V │ …
class paged_layout {
 public:
  /// `tensors` as the shape of `kind` asks for. Errors: invalid_argument, naming the tensor and the axis whose size or
  /// stride contradicts the shape; limit_exceeded: pages of more than 1 GiB.
  [[nodiscard]] static result<paged_layout> of(kv_layout kind, const kv_shape& shape,
                                               std::span<const tensor_view> tensors);

  /// Any other: layer i has pieces[i * n … i * n + n - 1] with n = pieces.size() / layers, back to back in a block in
  /// their order. Errors as above.
  [[nodiscard]] static result<paged_layout> of_pieces(std::vector<strided_piece> pieces, std::size_t layers,
                                                      std::uint64_t pages);

  [[nodiscard]] std::size_t layers() const noexcept { return layer_begins_.size() - 1; }
  [[nodiscard]] std::uint64_t pages() const noexcept { return pages_; }
  [[nodiscard]] layer_range all_layers() const noexcept { return {0, layers()}; }
  /// Bytes of a page, which are those of a block (or part).
  [[nodiscard]] std::uint64_t block_bytes() const noexcept { return offsets_.back(); }
  /// In their order in a block. The range must be valid, see check().
  [[nodiscard]] std::span<const strided_piece> pieces(layer_range layers) const noexcept;
  /// Where each of these pieces begins in a block, and at the end where the last one ends; bytes.
  [[nodiscard]] std::span<const std::uint64_t> offsets(layer_range layers) const noexcept;

  /// Refuses what would leave the tensors: invalid_argument, which says what.
  [[nodiscard]] result<void> check(const move_list& moves, layer_range layers) const;

 private:
  paged_layout(std::vector<strided_piece> pieces, std::vector<std::size_t> layer_begins, std::uint64_t pages);
  [[nodiscard]] static result<paged_layout> checked(std::vector<strided_piece> pieces,
                                                    std::vector<std::size_t> layer_begins, std::uint64_t pages);

  std::vector<strided_piece> pieces_;
  std::vector<std::uint64_t> offsets_;     // one more than pieces
  std::vector<std::size_t> layer_begins_;  // its first piece; one more than layers
  std::uint64_t pages_;
};

}  // namespace cenote
