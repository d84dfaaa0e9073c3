// The kernels that move pages to blocks and back. nvcc makes them kernels of a GPU (device/cuda/kernels.cu); any other
// compiler makes them functions that do the same with loops, so that tests run the very index arithmetic of the GPU.
// C++20 and nothing of this project but strided_piece, for nvcc's sake.
#pragma once

#include <cstddef>
#include <cstdint>

#include "device/strided_piece.hpp"

// CENOTE_KERNEL(name, body, arguments): `body` once for each thread. On a GPU a kernel called `name`; elsewhere a
// function name(arguments, groups, threads of a group).
#if defined(__CUDACC__)
#define CENOTE_DEVICE __device__ __forceinline__
#define CENOTE_ALIASING
#define CENOTE_KERNEL(name, body, arguments)                                   \
  extern "C" __global__ void __launch_bounds__(256, 4) name(arguments given) { \
    body(given, kernel_place{blockIdx.x, threadIdx.x, blockDim.x, gridDim.x}); \
  }
#else
#define CENOTE_DEVICE inline
#define CENOTE_ALIASING [[gnu::may_alias]]
#define CENOTE_KERNEL(name, body, arguments)                                              \
  inline void name(const arguments& given, std::uint32_t groups, std::uint32_t threads) { \
    for (std::uint32_t group = 0; group < groups; ++group) {                              \
      for (std::uint32_t thread = 0; thread < threads; ++thread)                          \
        body(given, kernel_place{group, thread, threads, groups});                        \
    }                                                                                     \
  }
#endif

namespace cenote::kernels {

/// One batch of moves, as a kernel gets it. All pointers, and what they point to, are memory that the kernel can reach.
/// All addresses, offsets, strides and sizes are multiples of the word that is moved (see word_bytes); a piece has less
/// than 4 GiB. Any number of groups and threads does all of it.
struct paged_move {
  const strided_piece* pieces;   ///< piece_count
  const std::uint64_t* offsets;  ///< piece_count: where each begins in a block
  const std::uint64_t* pages;    ///< block_count
  std::byte* const* blocks;      ///< block_count; null: they are rows
  std::byte* rows;               ///< block i at rows + i * row_bytes
  std::uint64_t row_bytes;
  std::uint32_t piece_count;
  std::uint32_t block_count;
  std::uint32_t slices;       ///< parts that a piece is moved in
  std::uint32_t slice_bytes;  ///< a multiple of 16; slices * slice_bytes >= bytes of every piece
  std::uint32_t to_blocks;    ///< 1: gather, 0: scatter

  /// Slices of all pieces of all blocks, a warp's work each. Below 4 Gi.
  [[nodiscard]] constexpr std::uint64_t units() const noexcept {
    return std::uint64_t{block_count} * piece_count * slices;
  }
};

/// Where a thread stands: blockIdx.x, threadIdx.x, blockDim.x, gridDim.x.
struct kernel_place {
  std::uint32_t group;
  std::uint32_t thread;
  std::uint32_t threads;
  std::uint32_t groups;
};

/// Threads that move neighbouring words.
inline constexpr std::uint32_t most_lanes = 32;

struct alignas(16) CENOTE_ALIASING word16 {
  std::uint32_t lanes[4];
};
struct CENOTE_ALIASING word4 {
  std::uint32_t lane;
};
struct CENOTE_ALIASING word1 {
  std::uint8_t lane;
};

/// One lane's share of one slice of one piece of one block. Words of neighbouring lanes are neighbours; a lane reads
/// four words before it writes them, so that it waits for memory once.
template <class Word>
CENOTE_DEVICE void move_slice(const paged_move& move, std::uint32_t unit, std::uint32_t lane, std::uint32_t lanes) {
  constexpr std::uint32_t ways = 4;
  const std::uint32_t slice = unit % move.slices;
  const std::uint32_t pair = unit / move.slices;
  const std::uint32_t block_number = pair / move.piece_count;
  const std::uint32_t piece_number = pair % move.piece_count;
  const strided_piece piece = move.pieces[piece_number];
  std::byte* const page = piece.base + move.pages[block_number] * piece.block_stride;
  std::byte* const first =
      move.blocks != nullptr ? move.blocks[block_number] : move.rows + block_number * move.row_bytes;
  std::byte* const block = first + move.offsets[piece_number];

  const auto run_bytes = static_cast<std::uint32_t>(piece.run_bytes);
  const std::uint64_t piece_bytes = piece.run_bytes * piece.runs;
  const std::uint64_t begin = std::uint64_t{slice} * move.slice_bytes;
  const std::uint64_t limit = begin + move.slice_bytes;
  const std::uint64_t end = limit < piece_bytes ? limit : piece_bytes;
  const std::uint64_t step = std::uint64_t{lanes} * sizeof(Word);
  for (std::uint64_t at = begin + lane * sizeof(Word); at < end; at += ways * step) {
    Word words[ways];
    Word* targets[ways];
    for (std::uint32_t way = 0; way < ways; ++way) {
      const std::uint64_t here = at + way * step;
      targets[way] = nullptr;
      if (here >= end) continue;
      const std::uint32_t run = static_cast<std::uint32_t>(here) / run_bytes;
      const std::uint64_t within = here - std::uint64_t{run} * run_bytes;
      std::byte* const in_page = page + run * piece.run_stride + within;
      std::byte* const in_block = block + here;
      words[way] = *reinterpret_cast<const Word*>(move.to_blocks != 0 ? in_page : in_block);
      targets[way] = reinterpret_cast<Word*>(move.to_blocks != 0 ? in_block : in_page);
    }
    for (std::uint32_t way = 0; way < ways; ++way) {
      if (targets[way] != nullptr) *targets[way] = words[way];
    }
  }
}

/// One thread's share of the batch: a warp takes every so many units, as many as there are warps.
template <class Word>
CENOTE_DEVICE void move_units(const paged_move& move, kernel_place place) {
  const std::uint32_t lanes = place.threads < most_lanes ? place.threads : most_lanes;
  const std::uint32_t warps = place.threads / lanes;  // of a group
  const std::uint32_t warp = place.thread / lanes;
  if (warp >= warps) return;
  const std::uint64_t units = std::uint64_t{move.block_count} * move.piece_count * move.slices;
  const std::uint64_t step = std::uint64_t{place.groups} * warps;
  for (std::uint64_t unit = std::uint64_t{place.group} * warps + warp; unit < units; unit += step) {
    move_slice<Word>(move, static_cast<std::uint32_t>(unit), place.thread % lanes, lanes);
  }
}

CENOTE_KERNEL(cenote_move_16, move_units<word16>, paged_move)
CENOTE_KERNEL(cenote_move_4, move_units<word4>, paged_move)
CENOTE_KERNEL(cenote_move_1, move_units<word1>, paged_move)

/// Work that stands for an engine's in measurements: multiply-adds in registers, or a pass over memory.
struct busy_work {
  std::uint32_t* memory;
  std::uint64_t words;   ///< 0: multiply-adds alone
  std::uint64_t rounds;  ///< of multiply-adds, or passes
};

CENOTE_DEVICE void be_busy(const busy_work& work, kernel_place place) {
  const std::uint64_t thread = std::uint64_t{place.group} * place.threads + place.thread;
  const std::uint64_t threads = std::uint64_t{place.groups} * place.threads;
  if (work.words != 0) {
    for (std::uint64_t round = 0; round < work.rounds; ++round) {
      for (std::uint64_t at = thread; at < work.words; at += threads) work.memory[at] += 1;
    }
    return;
  }
  float sums[4]{1.0F, 2.0F, 3.0F, static_cast<float>(place.thread)};
  for (std::uint64_t round = 0; round < work.rounds; ++round) {
    for (float& sum : sums) sum = sum * 1.0001F + 0.5F;
  }
  if (sums[0] + sums[1] + sums[2] + sums[3] == 12345.678F) work.memory[0] = 1;  // else nothing would be computed
}

CENOTE_KERNEL(cenote_be_busy, be_busy, busy_work)

}  // namespace cenote::kernels
